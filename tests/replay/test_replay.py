"""`promptools replay`: what changed, what is skipped, and what `--update` writes."""

import json

import pytest
from upstream import completion, running

from promptools import OpenAI
from promptools.cli import main
from promptools.recording import Recorder, read_rows

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TEXT = 'Sure. <tool_call>{"name": "get_weather", "arguments": {"city": "Paris",}}</tool_call>'
ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}], "tools": [TOOL]}


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """One recorded row."""
    folder = tmp_path_factory.mktemp("rows")
    recorder = Recorder(folder)
    with running() as server, OpenAI(base_url=server.url, api_key="x", observer=recorder, detect=False) as client:
        server.play(completion(TEXT))
        client.chat.completions.create(**ASK)
    recorder.close()
    (path,) = folder.iterdir()
    return path.read_text()


@pytest.fixture
def corpus(line, tmp_path):
    """A directory with a row that is read as recorded, and one that is not."""
    row = json.loads(line)
    row["expected"][0]["calls"][0]["arguments"] = {"city": "Rome"}
    (tmp_path / "a.jsonl").write_text(line)
    (tmp_path / "b.jsonl").write_text(line + json.dumps(row) + "\n")
    return tmp_path


def test_nothing_changed(line, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(line)
    assert main(["replay", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "1 the same, 0 changed, 0 skipped\n"
    assert main(["replay", str(tmp_path / "a.jsonl")]) == 0


def test_a_change_is_shown_and_is_a_failure(corpus, capsys):
    assert main(["replay", str(corpus)]) == 1
    out = capsys.readouterr().out
    assert "b.jsonl:2 (m, native, " in out
    assert '-          "city": "Rome"\n+          "city": "Paris"' in out
    assert out.endswith("2 the same, 1 changed, 0 skipped\n")


def test_an_update_writes_what_is_read_now(corpus, capsys):
    untouched = (corpus / "a.jsonl").stat().st_ino
    (corpus / "b.jsonl").chmod(0o640)
    assert main(["replay", "--update", str(corpus)]) == 0
    assert "1 changed and updated" in capsys.readouterr().out
    assert main(["replay", str(corpus)]) == 0
    assert (corpus / "a.jsonl").stat().st_ino == untouched
    assert (corpus / "b.jsonl").stat().st_mode & 0o777 == 0o640
    assert len(list(read_rows(corpus))) == 3


def test_json(corpus, capsys):
    assert main(["replay", "--json", str(corpus)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["same"] == 2
    assert report["skipped"] == []
    (changed,) = report["changed"]
    assert changed["line"] == 2
    assert changed["recorded"][0]["calls"][0]["arguments"] == {"city": "Rome"}
    assert changed["now"][0]["calls"][0]["arguments"] == {"city": "Paris"}


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda line: line[:-40] + "\n", "no JSON"),
        (lambda line: "[1]\n", "no recorded reply"),
        (lambda line: json.dumps({**json.loads(line), "format": 99}) + "\n", "the form of the row is 99"),
        (lambda line: json.dumps({**json.loads(line), "request": {}}) + "\n", "the row is not complete"),
        (lambda line: json.dumps({**json.loads(line), "replies": [7]}) + "\n", "the row is not complete"),
        (
            lambda line: json.dumps({**json.loads(line), "options": {"accept": ["nobody"]}}) + "\n",
            "options.accept must be",
        ),
        (lambda line: json.dumps({**json.loads(line), "profile": {"nothing": 1}}) + "\n", "the row is not complete"),
        (lambda line: "[" * 100_000 + "\n", "no JSON"),
    ],
)
def test_a_broken_line_is_named_and_skipped(line, damage, why, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(line + damage(line) + "\n" + line)
    before = (tmp_path / "a.jsonl").read_text()
    assert main(["replay", str(tmp_path), "--update"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "2 the same, 0 changed, 1 skipped\n"
    assert f"a.jsonl:2: skipped: {why}" in printed.err
    assert (tmp_path / "a.jsonl").read_text() == before


def test_where_there_is_nothing(tmp_path, capsys):
    assert main(["replay", str(tmp_path / "none")]) == 2
    assert main(["replay", str(tmp_path)]) == 2
    assert "no file there ends in .jsonl" in capsys.readouterr().err
