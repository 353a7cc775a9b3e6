"""The proxy's recorder writes what has ended when the proxy stops."""

from openai import OpenAI
from serving import serving
from upstream import completion, running

from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.proxy.operations import RecordingExtension
from promptools.recording import Recorder, read_rows

TOOL = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object"}}}


def test_a_proxy_that_stops_writes_what_has_ended(tmp_path):
    recorder = Recorder(tmp_path)
    extension = RecordingExtension(recorder)
    with running() as server:
        server.play(completion(None, [("ping", "{}")]))
        proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=[extension])
        with serving(proxy) as port, OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x") as client:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], tools=[TOOL])
    assert vars(recorder)["_thread"] is None
    (row,) = read_rows(tmp_path)
    assert row.expected[0]["calls"] == [{"name": "ping", "arguments": {}, "dialect": "native"}]
