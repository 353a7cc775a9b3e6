"""llama.cpp on a model in a file, which has a template of its own."""

import httpx
from openai import OpenAI

from promptools.lab import llamacpp_server, weather
from promptools.lab.scripted_model import write_model


def test_a_file_is_served_with_its_own_template_under_its_name(tmp_path):
    path = write_model(
        weather.hermes_script(), tmp_path, template=(llamacpp_server.TEMPLATES / "hermes.jinja").read_text()
    )
    with (
        llamacpp_server.serve_file(path, folder=tmp_path) as server,
        OpenAI(base_url=server.base_url, api_key="-") as client,
    ):
        question = {"role": "user", "content": weather.QUESTION}
        assert [each.id for each in client.models.list()] == [path.stem]
        reply = client.chat.completions.create(model=server.name, messages=[question], tools=[weather.TOOL])
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.name == weather.NAME


def test_slots_share_a_context_for_each(tmp_path):
    path = write_model(weather.hermes_script(), tmp_path, template="plain")
    with llamacpp_server.serve_file(path, folder=tmp_path, slots=3, context=2048, threads=1) as server:
        assert len(httpx.get(f"{server.url}/slots").json()) == 3
        assert "n_slots = 3, n_ctx_slot = 6144" in server.log.read_text()
