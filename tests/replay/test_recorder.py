"""The recorder with real clients: files, their limits and rights, what fails, and `promptools serve --record`."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from types import SimpleNamespace

import pytest
from upstream import Answer, chunk, completion, running, sse

import promptools.recording.recorder as recorder_module
from promptools import AsyncOpenAI, OpenAI, UsageError
from promptools.recording import Recorder, read_rows

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = completion(None, [("get_weather", '{"city": "Paris"}')])
ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}], "tools": [TOOL]}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture
def client(server):
    opened = []

    def make(recorder):
        opened.append(OpenAI(base_url=server.url, api_key="sk-0123456789abcdef", observer=recorder, detect=False))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def test_a_client_records(server, client, tmp_path):
    server.play(CALL)
    recorder = Recorder(tmp_path / "new" / "rows")
    client(recorder).chat.completions.create(**ASK)
    recorder.flush()
    (path,) = (tmp_path / "new" / "rows").iterdir()
    recorder.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.name.endswith(f"-{os.getpid()}.jsonl")
    assert "sk-0123456789abcdef" not in path.read_text()
    (row,) = read_rows(path)
    assert row.expected == [
        {
            "verdict": "answered",
            "calls": [{"name": "get_weather", "arguments": {"city": "Paris"}, "dialect": "native"}],
        }
    ]
    assert row.data["provider"] == server.url


def test_old_files_make_room(server, client, tmp_path):
    server.play(completion("x" * 4000))
    recorder = Recorder(tmp_path, limit=1 << 16)
    own = tmp_path / "mine.jsonl"
    own.write_text("{}\n" * 40_000)
    chat = client(recorder).chat.completions
    for _ in range(20):
        chat.create(**ASK)
    recorder.close()
    files = sorted(set(tmp_path.iterdir()) - {own})
    assert 5 < len(files) < 20
    assert sum(path.stat().st_size for path in files) <= 1 << 16
    assert all(row.difference() == "" for path in files for row in read_rows(path))
    assert own.exists()


def test_a_file_that_was_deleted_is_replaced(server, client, tmp_path):
    server.play(completion("hi"))
    recorder = Recorder(tmp_path)
    chat = client(recorder).chat.completions
    chat.create(**ASK)
    recorder.flush()
    (first,) = tmp_path.iterdir()
    first.unlink()
    chat.create(**ASK)
    recorder.close()
    assert len(list(read_rows(tmp_path))) == 1


def test_a_disk_that_fails_ends_the_recording_alone(server, client, tmp_path, caplog):
    server.play(completion("hi"))
    recorder = Recorder(tmp_path / "rows")
    (tmp_path / "rows").rmdir()
    chat = client(recorder).chat.completions
    for _ in range(3):
        assert chat.create(**ASK).choices[0].message.content == "hi"
        recorder.flush()
    recorder.close()
    assert [record.message for record in caplog.records if "recording" in record.message] == [
        "recording stopped: No such file or directory; exchanges go on without it"
    ]


def test_what_waits_to_be_written_is_bounded(server, client, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_HELD", 2000)
    server.play(completion("y" * 3000), completion("small"))
    recorder = Recorder(tmp_path)
    chat = client(recorder).chat.completions
    assert chat.create(**ASK).choices[0].message.content == "y" * 3000
    chat.create(**ASK)
    recorder.close()
    assert [row.expected[0]["content"] for row in read_rows(tmp_path)] == ["small"]
    assert "a reply was not recorded" in caplog.text
    assert vars(recorder)["_held"] == 0


def test_a_dropped_stream_may_end_while_the_recorder_starts(server, client, tmp_path, monkeypatch):
    """The collector ends it, at any moment in any thread: here in the one that holds the recorder's lock."""
    recorder = Recorder(tmp_path)
    server.play(sse(chunk({"content": "a"}), chunk({"content": "b"}), then="hang"), CALL)
    dropped = client(recorder).chat.completions.create(**ASK, stream=True)
    next(dropped)
    monkeypatch.setattr(
        recorder_module, "atexit", SimpleNamespace(register=lambda _: dropped.close(), unregister=lambda _: None)
    )
    client(recorder).chat.completions.create(**ASK)
    recorder.close()
    assert len([row for path in tmp_path.iterdir() for row in read_rows(path)]) == 2


def test_a_client_that_goes_away(server, tmp_path):
    server.play(sse(chunk({"content": "Sun"}), done=False, then="hang"))
    recorder = Recorder(tmp_path)

    async def read_a_part():
        client = AsyncOpenAI(base_url=server.url, api_key="x", observer=recorder, detect=False)
        async with client, await client.chat.completions.create(**ASK, stream=True) as stream:
            async for part in stream:
                if part.choices[0].delta.content:
                    return

    asyncio.run(read_a_part())
    recorder.close()
    (row,) = read_rows(tmp_path)
    assert (row.data["failed"], row.expected[0]["content"]) == ("disconnected", "Sun")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"redact": ["("]}, "is not a valid regular expression"),
        ({"redact": ["a*"]}, "matches the empty text"),
        ({"limit": 1}, "it must be at least"),
    ],
)
def test_what_cannot_be(given, why, tmp_path):
    with pytest.raises(UsageError, match=why):
        Recorder(tmp_path, **given)


def test_a_directory_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot record in"):
        Recorder(tmp_path / "file")


def test_the_proxy_records_to_the_end(server, tmp_path):
    pytest.importorskip("uvicorn")
    server.play(CALL)
    config = tmp_path / "promptools.toml"
    config.write_text(f'[providers.one]\nbase_url = "{server.url}"\n[proxy]\nredact = ["Par.s"]\n')
    command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--config", str(config), "--no-detect"]
    command += ["--record", str(tmp_path / "rows"), "--redact", "get_w[a-z]*"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = next(line.split()[1] for line in process.stdout if line.startswith("listening "))
        with OpenAI(base_url=url, api_key="sk-0123456789abcdef") as client:
            done = client.chat.completions.create(**ASK)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=300)
    assert json.loads(done.choices[0].message.tool_calls[0].function.arguments) == {"city": "Paris"}
    (row,) = read_rows(tmp_path / "rows")
    (call,) = row.expected[0]["calls"]
    assert (call["name"], call["arguments"]) == ("[redacted]", {"city": "[redacted]"})
    assert "sk-0123456789abcdef" not in json.dumps(row.data)


def test_options_without_a_recording(server):
    command = [sys.executable, "-m", "promptools", "serve", "--base-url", server.url, "--redact", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "add --record DIR" in done.stderr


def test_an_upstream_error_is_a_row_without_its_text(server, client, tmp_path):
    server.play(Answer(400, pieces=(b'{"error": {"message": "no such model: my-secret"}}',)))
    recorder = Recorder(tmp_path)
    with pytest.raises(Exception, match="no such model"):
        client(recorder).with_options(max_retries=0).chat.completions.create(**ASK)
    recorder.close()
    rows = list(read_rows(tmp_path))
    assert {(row.data["status"], row.data["failed"]) for row in rows} == {(400, "http")}
    assert "my-secret" not in "".join(path.read_text() for path in tmp_path.iterdir())
