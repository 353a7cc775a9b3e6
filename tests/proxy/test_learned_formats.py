"""Through the proxy: the format of a model that nobody knows is learned and read, and the inspector says so."""

import json

import httpx
import pytest
from invented_templates import invented_template
from serving import serving
from upstream import Upstream, few_certificates, unary

from promptools.modes.jinja_template import jinja_renderer
from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.proxy.inspector import Inspector
from promptools.transport import session

TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
ASK = {"model": "acme-7b", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [TOOL]}
SAID = 'Let me look.\n<|to|>get_weather<|with|>{"city": "Oslo"}<|sent|>'


class Rendering(Upstream):
    """A llama.cpp: it renders its template, and its parser knows nothing of the template's calls."""

    render = staticmethod(jinja_renderer(invented_template("named"), special_tokens={"bos_token": ""}))

    def answer(self, seen):
        if seen.path != "/apply-template":
            return super().answer(seen)
        body = json.loads(seen.body)
        calls = [call["function"] for message in body["messages"] for call in message.get("tool_calls", ())]
        for call in calls:
            call["arguments"] = json.loads(call["arguments"])
        prompt = self.render(body["messages"], body.get("tools"), add_generation_prompt=True)
        self.probes.append(seen)
        return unary({"prompt": prompt})


@pytest.fixture
def server():
    upstream = Rendering()
    upstream.about = {
        "/props": {"build_info": "b11549-abc", "default_generation_settings": {}},
        "/v1/models": {"object": "list", "data": [{"id": "acme-7b", "object": "model", "owned_by": "llamacpp"}]},
    }
    upstream.play(SAID)
    with few_certificates():
        yield upstream
    upstream.close()


def test_calls_are_read_and_the_inspector_names_the_dialect(server, monkeypatch, tmp_path):
    monkeypatch.setattr(session, "learned_folder", lambda: tmp_path)
    proxy = Proxy(base_url=server.url, config=Config(), api_keys=(), extensions=[Inspector()])
    with serving(proxy) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as http:
        for streamed in (False, True):
            body = {**ASK, "stream": streamed, "promptools": {"trace": True}}
            assert '"name":"get_weather"' in http.post("/v1/chat/completions", json=body).text.replace(": ", ":")
        (found,) = {path.stem for path in tmp_path.iterdir()}
        listed = http.get("/inspect/api/exchanges").json()
        details = [http.get(f"/inspect/api/exchanges/{each['id']}").json() for each in listed["exchanges"]]
    assert found in listed["dialects"]
    assert [each["calls"] for each in listed["exchanges"]] == [["get_weather"]] * 2
    for detail in details:
        text = json.dumps(detail)
        assert f"template_dialect = '{found}'" in text, "with its reason"
        assert f'"dialect": "{found}"' in text, "of the call"
    rendered = [each for each in server.looks if each.path == "/apply-template"]
    assert 0 < len(rendered) < 120
