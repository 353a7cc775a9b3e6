"""Dialects of an app's own are known where they are named, by every way to name them, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
from pathlib import Path

import ollama
import openai
import pytest
from serving import serving
from upstream import running

from promptools import UsageError, dialects, parse, render, resolve, wrap
from promptools.batch import reparse_columns
from promptools.batch.ray_cluster import ServerActorSettings, _reparse_block, decode_chunk, encode_chunk
from promptools.cli import build_parser, main
from promptools.cli.serve_command import build_proxy
from promptools.client import AsyncOpenAI, OpenAI
from promptools.dialects.own_dialects import read_own
from promptools.dialects.table import make_dialect
from promptools.dialects.table_file import MAX_TABLE, read_table
from promptools.ollama.ollama_clients import Client
from promptools.probing.checks import find_call
from promptools.probing.findings import Answer
from promptools.profiles import Config, load_config
from promptools.proxy import Proxy
from promptools.proxy.inspector import Inspector
from promptools.recording import Recorder, read_rows

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [TOOL]}
ROUND = 'name = "acme"\ntier = "S"\n[openers]\n"((acme))" = "((/acme))"\n'
SQUARE = 'name = "acme"\ntier = "S"\n[openers]\n"[[acme]]" = "[[/acme]]"\n'
BODY = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
CALL, SQUARE_CALL = f"((acme)){BODY}((/acme))", f"[[acme]]{BODY}[[/acme]]"
READ = [("get_weather", '{"city": "Oslo"}')]


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No config is found, but those that a test writes."""
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "PROMPTOOLS_", "PPXAI_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def acme(tmp_path):
    return written(tmp_path / "acme.toml", ROUND)


@pytest.fixture
def square(tmp_path):
    return written(tmp_path / "square.toml", SQUARE)


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def client_of(server, **options):
    return OpenAI(**{"base_url": server.url, "api_key": "x", "max_retries": 0, "config": Config(), **options})


def said(client, **more):
    """Return the calls and the content of a reply."""
    message = client.chat.completions.create(**ASK, **more).choices[0].message
    return [(call.function.name, call.function.arguments) for call in message.tool_calls or []], message.content


# --- clients and proxies ------------------------------------------------------------------------------------------


def test_a_client_reads_its_own_dialect_and_no_other_client_does(server, acme):
    server.play(CALL)
    with client_of(server, dialects=[acme]) as own, client_of(server) as other:
        assert said(own) == (READ, None)
        assert said(other) == ([], CALL)
        assert said(own.with_options(timeout=60)) == (READ, None), "a copy"
    assert "acme" not in dialects.names()


@pytest.mark.parametrize("words", ["", "Let me look. " * 8000], ids=["short", "so long that a thread reads it"])
def test_a_stream_and_an_event_loop(server, acme, words):
    server.play(words + CALL)

    async def ask():
        async with AsyncOpenAI(base_url=server.url, api_key="x", config=Config(), dialects=[acme]) as client:
            whole = (await client.chat.completions.create(**ASK)).choices[0].message
            stream = await client.chat.completions.create(**ASK, stream=True)
            names = [
                call.function.name
                async for chunk in stream
                for choice in chunk.choices
                for call in choice.delta.tool_calls or []
            ]
        return [call.function.name for call in whole.tool_calls], [name for name in names if name]

    assert asyncio.run(ask()) == (["get_weather"], ["get_weather"])


def test_prompt_mode_asks_in_it(server, acme):
    server.play(CALL)
    with client_of(server, dialects=[acme], dialect="acme", mode="prompt") as client:
        assert said(client) == (READ, None)
    asked = server.requests[0].json["messages"][0]["content"]
    assert '((acme)){"name": "get_weather", "arguments": {"city": "<city>"}}((/acme))' in asked


def test_a_request_may_name_it_where_it_is_known(server, acme):
    server.play(CALL)
    ask = {"extra_body": {"promptools": {"mode": "prompt", "dialect": "acme"}}}
    with client_of(server, dialects=[acme]) as own, client_of(server) as other:
        assert said(own, **ask) == (READ, None)
        with pytest.raises(openai.BadRequestError, match="no dialect 'acme'"):
            said(other, **ask)


def test_a_name_that_only_another_client_knows_is_an_error(server, acme):
    with client_of(server, dialects=[acme], dialect="acme", accept=["acme"]):
        for wrong in ({"dialect": "acme"}, {"accept": ["acme"]}):
            with pytest.raises(UsageError, match=r"acme|a list of dialects"):
                client_of(server, **wrong)


def test_two_proxies_have_different_dialects_of_one_name(server, acme, square):
    proxies = [
        Proxy(base_url=server.url, config=Config(), mode="prompt", dialect="acme", dialects=[path])
        for path in (acme, square)
    ]
    texts = (CALL, SQUARE_CALL)
    with serving(proxies[0]) as one, serving(proxies[1]) as two:
        for port, own in ((one, CALL), (two, SQUARE_CALL), (one, CALL)):
            with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", max_retries=0) as client:
                for text in texts:
                    server.play(text)
                    assert said(client) == ((READ, None) if text == own else ([], text))
                    shown = server.requests[0].json["messages"][0]["content"]
                    assert [opener in shown for opener in ("((acme))", "[[acme]]")] == [own == CALL, own != CALL]


def test_wrapped_clients_and_ollamas(server, acme):
    server.play(CALL)
    with wrap(openai.OpenAI(base_url=server.url, api_key="x"), config=Config(), dialects=[acme]) as client:
        assert said(client) == (READ, None)
    answer = {"model": "m", "message": {"role": "assistant", "content": CALL}, "done": True, "done_reason": "stop"}
    server.play(answer)
    for client in (
        Client(server.root, config=Config(), dialects=[acme], detect=False),
        wrap(ollama.Client(server.root), config=Config(), dialects=[acme], detect=False),
    ):
        with client._client:
            reply = client.chat("m", ASK["messages"], tools=[TOOL])
        assert [call.function.name for call in reply.message.tool_calls] == ["get_weather"]


def test_a_dialect_may_be_an_object(server):
    own = make_dialect({"name": "acme", "openers": {"((acme))": "((/acme))"}, "tier": "S"}, "acme.toml")
    server.play(CALL)
    with client_of(server, dialects=[own]) as client:
        assert said(client) == (READ, None)
        assert said(client) == (READ, None)


def test_the_own_one_is_meant_where_the_process_knows_another_of_its_name(server, acme, square):
    registered = dialects.load(square)
    try:
        with client_of(server, dialects=[acme]) as own, client_of(server) as other:
            server.play(CALL)
            assert said(own) == (READ, None)
            assert said(other) == ([], CALL)
            server.play(SQUARE_CALL)
            assert said(own) == ([], SQUARE_CALL)
            assert said(other) == (READ, None)
    finally:
        dialects.unregister(registered.name)


# --- the config ---------------------------------------------------------------------------------------------------


def config_of(server, tmp_path, dialect="acme.toml", more=""):
    return written(
        tmp_path / "promptools.toml",
        f'dialects = ["{dialect}"]\n[providers.gpu]\nbase_url = "{server.url}"\n{more}',
    )


def test_a_config_names_them_relative_to_itself(server, acme, tmp_path, monkeypatch):
    more = 'default_model = "m"\n[providers.gpu.profile]\nmodes = ["prompt"]\ndialect = "acme"\n'
    file = config_of(server, tmp_path, more=more)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    server.play(CALL)
    with OpenAI(config=file) as client:
        assert said(client) == (READ, None)
        assert "((acme))" in server.requests[0].json["messages"][0]["content"]
    assert resolve("m", config=load_config(tmp_path / "promptools.toml")).profile.dialect == "acme"
    with (
        serving(Proxy(config=file)) as port,
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x") as client,
    ):
        assert said(client) == (READ, None)


def test_a_proxy_reads_the_tables_of_its_config_again(server, acme, tmp_path):
    file = config_of(server, tmp_path)
    proxy = Proxy(config=file)
    with serving(proxy) as port, openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x") as client:
        server.play(CALL)
        assert said(client) == (READ, None)
        written(tmp_path / "acme.toml", SQUARE)
        assert said(client) == (READ, None)
        proxy.reload(file)
        assert said(client) == ([], CALL)
        server.play(SQUARE_CALL)
        assert said(client) == (READ, None)
        written(tmp_path / "acme.toml", ROUND.replace('"S"', '"X"'))
        with pytest.raises(UsageError, match="'tier' is 'X'"):
            proxy.reload(file)
        assert said(client) == (READ, None), "the old one is kept"


def test_a_table_may_be_named_twice(server, acme, tmp_path):
    file = config_of(server, tmp_path)
    server.play(CALL)
    with OpenAI(config=file, dialects=["acme.toml"]) as client:
        assert said(client) == (READ, None)


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        (None, "cannot be read: No such file or directory"),
        ("name = ", "is not valid TOML"),
        (ROUND.replace("tier", "tire"), "has a key 'tire'; the keys are name, "),
        (ROUND.replace('"S"', '"X"'), "'tier' is 'X'; expected 'S', 'A' or 'B'"),
        (ROUND.replace("acme", "hermes", 1), "There is a dialect 'hermes' already; give the one of "),
        ("# " + "x" * MAX_TABLE, "has more than 65536 bytes"),
    ],
)
def test_an_error_names_both_files_and_the_key(server, tmp_path, table, wrong):
    if table is not None:
        written(tmp_path / "acme.toml", table)
    file = config_of(server, tmp_path)
    with pytest.raises(UsageError) as caught:
        OpenAI(config=file)
    assert str(caught.value).startswith(f"{file}: dialects: ")
    assert f"{tmp_path}/acme.toml" in str(caught.value)
    assert wrong in str(caught.value)


@pytest.mark.parametrize("value", ['"acme.toml"', "1", "[1]", '["acme.toml", "acme.toml"]'])
def test_the_key_holds_an_array_of_paths(tmp_path, acme, value):
    file = written(tmp_path / "promptools.toml", f"dialects = {value}")
    with pytest.raises(UsageError, match=r"promptools\.toml: dialects"):
        OpenAI(config=file, api_key="x")


def test_two_tables_of_one_name_are_an_error(server, acme, square):
    with pytest.raises(UsageError, match=r"There is a dialect 'acme' already; give the one of '.*square\.toml'"):
        client_of(server, dialects=[acme, square])


@pytest.mark.parametrize("wrong", [1, [1], [None], [b"acme.toml"], {"name": "acme"}])
def test_what_is_not_a_dialect(server, wrong):
    with pytest.raises(UsageError, match=r"not a dialect|cannot be read"):
        client_of(server, dialects=wrong)


@pytest.mark.parametrize("name", ["pipe", "folder", "/dev/zero"])
def test_only_files_are_read(tmp_path, name):
    """A pipe would wait for a writer, and a device has no end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        read_table(tmp_path / name)


# --- other processes, threads and tools -----------------------------------------------------------------------------


def test_an_actor_of_a_cluster_gets_the_tables_and_no_paths(server, acme, square, tmp_path):
    written(tmp_path / "square.toml", SQUARE.replace("acme", "other"))
    file = config_of(server, tmp_path)
    settings = {"mode": None, "model": None, "default_model": None, "timeout": 60, "patience": 60, "concurrency": 1}
    with OpenAI(config=file, provider="gpu", dialects=["square.toml"]) as client:
        sent = pickle.dumps(ServerActorSettings.of_client(client, **settings))
    (tmp_path / "acme.toml").unlink()
    (tmp_path / "square.toml").unlink()

    async def ask():
        async with pickle.loads(sent).make_client() as client:
            for text in (CALL, SQUARE_CALL.replace("acme", "other")):
                server.play(text)
                message = (await client.chat.completions.create(**ASK)).choices[0].message
                assert [call.function.name for call in message.tool_calls] == ["get_weather"]

    asyncio.run(ask())


def test_a_task_of_a_cluster_gets_the_tables(acme):
    pytest.importorskip("pyarrow")
    block = encode_chunk([(1, json.dumps({"text": CALL}).encode())])
    (line,) = decode_chunk(_reparse_block(block, as_row=False, dialects=[read_table(acme)]))
    assert [call["dialect"] for call in json.loads(line.text)["calls"]] == ["acme"]


def test_a_probe_finds_calls_in_them(acme):
    answer = Answer(200, content=CALL)
    with dialects.using(acme):
        assert "as acme" in find_call(answer, TOOL["function"])
    assert find_call(answer, TOOL["function"]) is None


def test_columns_are_read_with_them(acme):
    pytest.importorskip("pyarrow")
    batch = {"text": [CALL, SQUARE_CALL]}
    tables = pickle.loads(pickle.dumps([dialects.read_table(acme)]))
    for given in ([acme], tables):
        calls = reparse_columns(batch, dialects=given)["calls"].to_pylist()
        assert [[call["dialect"] for call in of or []] for of in calls] == [["acme"], []]
    assert not any(reparse_columns(batch)["calls"].to_pylist())


@pytest.mark.parametrize("workers", ["1", "2"])
def test_logged_replies_are_read_with_them(tmp_path, acme, workers):
    written(tmp_path / "in.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in (CALL, "Hi.")))
    assert main(["reparse", "in.jsonl", "out.jsonl", "--workers", workers, "--dialect-file", "acme.toml"]) == 0
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert ([call["dialect"] for call in first["calls"]], second["content"]) == (["acme"], "Hi.")


def test_a_recording_is_read_with_them_when_it_is_written_and_when_it_is_replayed(server, acme, tmp_path, capsys):
    recorder = Recorder(tmp_path / "corpus")
    server.play(CALL)
    with client_of(server, dialects=[acme], dialect="acme", mode="prompt", observer=recorder) as client:
        assert said(client) == (READ, None)
        stream = client.chat.completions.create(**ASK, stream=True)
        next(iter(stream))
        stream.close()
    recorder.close()
    whole, _ = read_rows(tmp_path / "corpus")
    assert [call["dialect"] for call in whole.expected[0]["calls"]] == ["acme"]
    assert main(["replay", "corpus", "--dialect-file", "acme.toml"]) == 0
    assert "2 the same" in capsys.readouterr().out
    assert main(["replay", "corpus"]) == 1
    assert "no dialect 'acme'" in capsys.readouterr().err


def test_the_inspector_reads_with_them(server, acme):
    pytest.importorskip("starlette")
    import httpx

    proxy = Proxy(base_url=server.url, config=Config(), dialects=[acme], extensions=[Inspector()])
    server.play(CALL)
    with serving(proxy) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as http:
        http.post("/v1/chat/completions", json=ASK)
        listed = http.get("/inspect/api/exchanges").json()
        assert listed["dialects"][0] == "acme"
        shown = http.get(f"/inspect/api/exchanges/{listed['exchanges'][0]['id']}").json()
        assert "get_weather · acme" in json.dumps(shown, ensure_ascii=False)
        bench = http.post("/inspect/api/parse", json={"text": CALL, "dialect": "acme"}).json()
        assert "get_weather · acme" in [part["label"] for part in bench["parts"]]


def test_a_block_of_code_may_know_them(acme, square):
    with dialects.using(acme):
        assert parse(CALL).calls[0].dialect == "acme"
        assert "((acme))" in render(ASK["messages"], [TOOL], dialect="acme")[0]["content"]
        with dialects.using(acme):
            assert dialects.names().count("acme") == 1
        with dialects.using(square):
            assert [len(parse(text).calls) for text in (CALL, SQUARE_CALL)] == [0, 1]
        with pytest.raises(UsageError, match="already"):
            dialects.load(square)
    assert parse(CALL).calls == ()


def test_equal_tables_share_what_is_compiled(acme):
    assert read_own([acme]) is read_own([acme])
    with dialects.using(acme):
        first = dialects.edition()
    with dialects.using(acme), dialects.using(acme):
        assert dialects.edition() == first


# --- the commands ---------------------------------------------------------------------------------------------------


def test_parse_render_and_dialects(tmp_path, acme, capsys):
    written(tmp_path / "reply.txt", CALL)
    own = ["--dialect-file", "acme.toml"]
    for more in ([], ["--dialect", "acme"], ["--expect", "acme"], ["--accept", "acme"]):
        assert main(["parse", "reply.txt", "--json", *own, *more]) == 0
        assert json.loads(capsys.readouterr().out)["calls"][0]["dialect"] == "acme"
    written(tmp_path / "tools.json", json.dumps([TOOL]))
    assert main(["render", "--tools", "tools.json", "--dialect", "acme", *own]) == 0
    assert "((acme))" in capsys.readouterr().out
    written(tmp_path / "request.json", json.dumps(ASK))
    assert main(["render", "request.json", "--dialect", "acme", *own]) == 0
    assert "((acme))" in capsys.readouterr().out
    assert main(["dialects", "acme", *own]) == 0
    assert "((acme))" in capsys.readouterr().out
    assert main(["dialects", "--json", *own]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "acme"
    assert main(["parse", "reply.txt", "--dialect", "acme"]) == 2
    assert "There is no dialect 'acme'" in capsys.readouterr().err
    assert main(["parse", "reply.txt", "--dialect-file", "acme.tmol"]) == 2
    assert "The dialect 'acme.tmol' cannot be read" in capsys.readouterr().err


def test_chat(server, acme, tmp_path, capsys):
    written(tmp_path / "tools.json", json.dumps([TOOL]))
    server.play(CALL)
    ask = ["chat", server.url, "--model", "m", "--tools", "tools.json", "--json", "--no-detect", "Weather?"]
    for more, calls in ((["--dialect-file", "acme.toml"], 1), ([], 0)):
        assert main([*ask, *more]) == 0
        assert len(json.loads(capsys.readouterr().out)["message"].get("tool_calls", [])) == calls


def test_batch(server, acme, tmp_path):
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": ASK}
    written(tmp_path / "in.jsonl", json.dumps(line) + "\n")
    server.play(CALL)
    own = ["--dialect-file", "acme.toml", "--no-detect"]
    assert main(["batch", "in.jsonl", "out.jsonl", "--base-url", server.url, "--quiet", *own]) == 0
    (row,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    (call,) = row["response"]["body"]["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"


def proxy_of(*arguments):
    words = build_parser().parse_args(["serve", *arguments])
    words.quiet, words.verbose = True, False
    return build_proxy(words)


def test_serve(server, acme, tmp_path):
    asked = ["--mode", "prompt", "--dialect", "acme", "--accept", "acme"]
    file = written(tmp_path / "given.toml", Path(config_of(server, tmp_path)).read_text())
    (tmp_path / "promptools.toml").unlink()
    for more in (["--base-url", server.url, "--dialect-file", "acme.toml"], ["--config", file]):
        session = proxy_of(*more, *asked).session
        assert [*session.own_dialects.by_name] == ["acme"]
        assert (session.context.options.dialect, session.context.options.accept) == ("acme", ("acme",))
    for wrong in (["--dialect", "acme"], ["--accept", "acme"]):
        with pytest.raises(UsageError, match="acme"):
            proxy_of("--base-url", server.url, *wrong)
