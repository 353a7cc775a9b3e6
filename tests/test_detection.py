"""Looks of a whole client, proxy and command, against a real HTTP server that answers as real ones do."""

import asyncio
import json
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import openai
import pytest
from upstream import Answer, completion, running
from waiting import LONG

from promptools.cli import main
from promptools.client import AsyncOpenAI, OpenAI
from promptools.exchange import detection
from promptools.profiles import Config, Provider
from promptools.proxy import Proxy
from promptools.wrapping import wrap

uvicorn = pytest.importorskip("uvicorn")
RECORDED = json.loads((Path(__file__).parent / "recordings/looks/servers.json").read_text(encoding="utf-8"))
OLLAMA = {path: said[1] for path, said in RECORDED["ollama 0.32.15"].items() if path not in {"*", "/api/show"}}
OLLAMA["/api/show"] = RECORDED["ollama 0.32.15"]["/api/show"]["go"][1]
VLLM = {"/version": {"version": "0.32.0"}, "/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}
HELLO = {"model": "go", "messages": [{"role": "user", "content": "hi"}], "extra_body": {"promptools": {"trace": True}}}
SAID = {"model": "go", "message": {"role": "assistant", "content": "hi"}, "done": True, "done_reason": "stop"}


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


def made(server, **more):
    return {"base_url": server.url, "api_key": "sk-mine", "max_retries": 0, "config": Config(), **more}


@contextmanager
def serving(app):
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", loop="asyncio", ws="none")
    running_app = uvicorn.Server(config)
    thread = threading.Thread(target=running_app.run, daemon=True)
    thread.start()
    while not running_app.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{running_app.servers[0].sockets[0].getsockname()[1]}/v1"
    finally:
        running_app.should_exit = True
        thread.join(300)


def paths(server):
    return sorted(probe.path for probe in server.looks)


def test_an_ollama_that_nobody_named_is_spoken_to_in_its_own_api(server):
    server.about = OLLAMA
    server.play(SAID)
    with OpenAI(**made(server)) as client:
        reply = client.chat.completions.create(**HELLO)
        again = client.chat.completions.create(**HELLO)
    assert reply.choices[0].message.content == "hi"
    assert [request.path for request in server.seen] == ["/api/chat", "/api/chat"]
    assert (reply.promptools["seen"]["kind"], reply.promptools["seen"]["version"]) == ("ollama", "0.32.15")
    assert again.promptools["seen"]["seconds"] == 0
    assert len(server.looks) == 7
    assert {probe.headers["authorization"] for probe in server.looks} == {"Bearer sk-mine"}


def test_the_async_client_looks_too(server):
    server.about = VLLM
    server.play(completion("hi"))

    async def go():
        async with AsyncOpenAI(**made(server)) as client:
            return await client.chat.completions.create(**HELLO)

    assert asyncio.run(go()).promptools["seen"]["version"] == "0.32.0"
    assert len(server.looks) == 6


def test_detect_false_asks_nothing(server):
    server.about = OLLAMA
    server.play(completion("hi"))
    with OpenAI(**made(server, detect=False)) as client:
        assert client.chat.completions.create(**HELLO).promptools["seen"] is None
    with wrap(openai.OpenAI(base_url=server.url, api_key="k"), detect=False, config=Config()) as client:
        client.chat.completions.create(**HELLO)
    with OpenAI(**made(server)) as client:
        client.with_options(detect=False).chat.completions.create(**HELLO)
    proxy = serving(Proxy(base_url=server.url, config=Config(), detect=False))
    with proxy as url, openai.OpenAI(base_url=url, api_key="k") as client:
        client.chat.completions.create(**HELLO)
    assert server.looks == []
    assert {request.path for request in server.seen} == {"/v1/chat/completions"}


def test_a_vllm_that_is_named_is_asked_only_for_its_version_and_models(server):
    server.about = VLLM
    server.play(completion("hi"))
    told = Config(providers={"here": Provider("here", base_url=server.url, kind="vllm", detect=True)})
    for settings in ({"provider": "vllm"}, {"config": told}):
        with OpenAI(**made(server, **settings)) as client:
            replies = [client.chat.completions.create(**HELLO) for _ in range(2)]
        assert [each.promptools["seen"]["version"] for each in replies] == ["0.32.0"] * 2
        assert paths(server) == ["/v1/models", "/version"]
        server.looks.clear()


def test_a_provider_of_the_config_and_one_that_is_not_to_be_asked_ask_nothing(server):
    server.play(completion("hi"))
    config = Config(providers={"here": Provider("here", base_url=server.url)})
    for settings in ({"provider": "vllm", "detect": False}, {"config": config}):
        with OpenAI(**made(server, **settings)) as client:
            client.chat.completions.create(**HELLO)
    assert server.looks == []


def test_copies_and_wrapped_clients_share_what_was_seen(server):
    server.about = VLLM
    server.play(completion("hi"))
    with wrap(openai.OpenAI(base_url=server.url, api_key="k", max_retries=0), config=Config()) as client:
        for each in (client, client.with_options(timeout=9), wrap(client.with_options(), trace=True)):
            each.chat.completions.create(**HELLO)
    assert len(server.looks) == 6


def test_a_proxy_looks_once_for_all_its_clients(server):
    server.about = VLLM
    server.play(completion("hi"))
    with serving(Proxy(base_url=server.url, config=Config())) as url:
        for key in ("one", "two"):
            with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
                assert client.chat.completions.create(**HELLO).promptools["seen"]["kind"] == "vllm"
    assert len(server.looks) == 6
    assert {probe.headers["authorization"] for probe in server.looks} == {"Bearer one"}


def test_a_proxy_follows_no_redirection_with_the_clients_key(server):
    server.about = {"/v1/models": Answer(307, headers={"Location": f"{server.root}/elsewhere"}), "/elsewhere": {}}
    server.play(completion("hi"))
    proxy = serving(Proxy(base_url=server.url, config=Config()))
    with proxy as url, openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        client.chat.completions.create(**HELLO)
    assert "/elsewhere" not in paths(server)


def test_a_server_that_keeps_still_is_waited_for_no_longer_than_a_look_may_take(server, monkeypatch):
    monkeypatch.setattr(detection, "PROBE_TIMEOUT", 0.3)
    paths = ("/api/version", "/version", "/props", "/api/v0/models", "/api/v1/models", "/v1/models")
    server.about = {path: Answer(before=LONG) for path in paths}
    server.play(completion("hi"))
    with OpenAI(**made(server)) as client:
        reply = client.chat.completions.create(**HELLO)
    assert reply.promptools["seen"]["why"] == "nothing answered in time"
    assert reply.choices[0].message.content == "hi"


def test_a_server_with_one_worker_is_not_held_up():
    """Kept connections of a look would hold its only worker until they expire."""
    with closing(OneWorker()) as server:
        with OpenAI(base_url=server.url, api_key="k", max_retries=0, config=Config()) as client:
            reply = client.chat.completions.create(**HELLO)
        assert {answer for _, answer in reply.promptools["seen"]["asked"]} == {"HTTP 404"}


class OneWorker:
    """Serves one connection after the other, each as long as its client keeps it."""

    def __init__(self):
        from http.server import BaseHTTPRequestHandler, HTTPServer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer(404, b"{}")

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                self.answer(200, json.dumps(completion("hi")).encode())

            def answer(self, status, body):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def test_detect_shows_what_a_server_tells(server, capsys):
    server.about = OLLAMA
    server.play()
    assert main(["detect", "--base-url", server.root, "--model", "go", "--api-key", "sk-mine"]) == 0
    printed = capsys.readouterr().out
    assert "POST /api/show" in printed
    assert "Ollama, version 0.32.15: GET /api/version answers as Ollama does" in printed
    assert "go: completion, tools, made for 8192 tokens" in printed
    assert "sk-mine" not in printed
    assert {probe.headers["authorization"] for probe in server.looks} == {"Bearer sk-mine"}


def test_detect_shows_what_a_server_tells_of_its_model(server, capsys):
    server.about = {"/v1/models": {"data": [{"id": "fast", "root": "openai/gpt-oss-20b", "owned_by": "vllm"}]}}
    server.play()
    assert main(["detect", "--base-url", server.root, "--model", "fast"]) == 0
    assert "fast: family gpt-oss, by root 'gpt-oss-20b', which the server tells" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize(
    ("version", "capabilities", "told"),
    [
        (
            "0.32.15",
            ["completion", "tools"],
            "raw mode is offered after native mode: its prompt is rendered by 'ollama'",
        ),
        ("0.32.15", ["completion"], "raw mode is not offered: the model's template shows it no tools"),
        ("0.11.10", ["completion", "tools"], "raw mode is not offered: nothing is known that renders the model's"),
    ],
)
def test_detect_tells_whether_raw_mode_is_possible(server, capsys, version, capabilities, told):
    server.about = {**OLLAMA, "/api/version": {"version": version}, "/api/show": {"capabilities": capabilities}}
    server.play()
    arguments = ["detect", "--base-url", server.root, "--model", "go"]
    assert main(arguments) == 0
    assert told in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["raw_mode"].startswith(told)
    assert ("raw" in data["modes"]) == ("is offered" in told)


def test_detect_tells_a_script(server, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.about = {}
    server.play()
    assert main(["detect", "--base-url", server.url, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["base_url"], data["kind"], data["why"]) == (server.url, None, "no answer says what server it is")
    assert server.looks[0].headers["authorization"] is None


def test_detect_says_what_a_server_that_tells_nothing_is_taken_for(server, capsys):
    server.play()
    assert main(["detect", "--base-url", server.url]) == 0
    assert "Treated as 'openai-compatible': no answer says what server it is" in capsys.readouterr().out


def test_detect_fails_where_nobody_answers(capsys):
    assert main(["detect", "--base-url", "http://127.0.0.1:9/v1"]) == 1
    assert capsys.readouterr().err.startswith(
        "promptools detect: no answer from http://127.0.0.1:9/v1; start the server"
    )
    assert main(["detect", "http://127.0.0.1:9/v1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["why"] == "nothing answered in time"
    with pytest.raises(SystemExit, match="2"):
        main(["detect", "--base-url", "localhost:8000"])
    assert "'localhost:8000' is not a URL; did you mean 'http://localhost:8000/v1'?" in capsys.readouterr().err


def test_chat_can_be_told_not_to_look(server, capsys):
    server.about = OLLAMA
    server.play(completion("hi"))
    assert main(["chat", "hi", "--json", "--model", "m", "--base-url", server.url, "--no-detect"]) == 0
    assert json.loads(capsys.readouterr().out)["promptools"]["seen"] is None
    assert server.looks == []
