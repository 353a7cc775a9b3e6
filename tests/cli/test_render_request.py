"""`promptools render FILE`: the text, the ids and the tokens of a request."""

import io
import json
import sys
from datetime import date

import oracle
import pytest

from promptools import render
from promptools.cli import main
from promptools.harmony import bpe_vocabulary

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
REQUEST = {
    "model": "openai/gpt-oss-20b",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Bergen?"},
        {"role": "assistant", "reasoning": "Old thoughts.", "content": "Rain."},
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "reasoning": "They want the weather.", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "Rain, 7 degrees."},
    ],
    "tools": [TOOL],
}
DECLARED = (
    "# Tools\n\n## functions\n\nnamespace functions {\n\n// Tell the weather.\ntype get_weather = (_: {\ncity: string,"
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a request; there is no vocabulary but where a test says so."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (bpe_vocabulary.FOLDER_VARIABLE, bpe_vocabulary.CACHE_VARIABLE):
        monkeypatch.delenv(name, raising=False)

    def put(body=REQUEST, **more):
        path = tmp_path / "request.json"
        path.write_text(json.dumps({**body, **more} if isinstance(body, dict) else body))
        return path

    return put


@pytest.fixture
def at_hand(write, monkeypatch):
    """The vocabulary is there."""
    monkeypatch.setenv(bpe_vocabulary.FOLDER_VARIABLE, str(oracle.file().parent))


def run(capsys, *arguments):
    status = main(["render", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def text_of(capsys, *arguments):
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    return out


def test_the_text(capsys, write):
    text = text_of(capsys, write(), "--date", "2026-11-21")
    assert text.startswith("<|start|>system<|message|>You are ChatGPT")
    assert "\nCurrent date: 2026-11-21\n\nReasoning: medium\n" in text
    assert f"<|start|>developer<|message|># Instructions\n\nBe brief.\n\n{DECLARED}" in text
    assert "Old thoughts." not in text
    assert text.endswith(
        "<|start|>assistant<|channel|>analysis<|message|>They want the weather.<|end|>"
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>'
        "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>Rain, 7 degrees.<|end|>"
        "<|start|>assistant\n"
    )


def test_the_text_from_stdin_as_json(capsys, write, monkeypatch):
    text = text_of(capsys, write())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(REQUEST).encode())))
    assert json.loads(text_of(capsys, "-", "--json")) == {"text": text.removesuffix("\n")}


def test_how_it_is_told(capsys, write):
    path = write()
    assert f"Current date: {date.today()}\n" in text_of(capsys, path)
    assert "Current date" not in text_of(capsys, path, "--date", "none")
    assert "Old thoughts." in text_of(capsys, path, "--thoughts", "keep")
    assert "Reasoning: high" in text_of(capsys, path, "--effort", "high")
    system, _, rest = text_of(capsys, path, "--tools-in", "system").partition("<|start|>developer")
    assert DECLARED in system
    assert DECLARED not in rest


@pytest.mark.parametrize(
    "said", [{"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}, {"think": False}, {"think": "low"}]
)
def test_the_request_s_effort(capsys, write, said):
    assert "Reasoning: low" in text_of(capsys, write(**said))
    assert "Reasoning: high" in text_of(capsys, write(**said), "--effort", "high")


def test_the_request_s_own_options(capsys, write):
    path = write(promptools={"tools_in": "system", "thoughts": "keep", "date": "2025-01-02"})
    text = text_of(capsys, path)
    assert DECLARED in text.partition("<|start|>developer")[0]
    assert "Old thoughts." in text
    assert "Current date: 2025-01-02\n" in text
    text = text_of(capsys, path, "--tools-in", "developer", "--thoughts", "turn", "--date", "2026-11-21")
    assert DECLARED in text.partition("<|start|>developer")[2]
    assert "Old thoughts." not in text
    assert "Current date: 2026-11-21\n" in text
    assert "Current date" not in text_of(capsys, write(promptools={"date": ""}))


def test_what_is_said_in_the_model_s_name(capsys, write):
    text = text_of(capsys, write(tool_choice="required", promptools={"prefill": "call"}))
    call = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    assert text.endswith(f"<|start|>assistant{call}\n")


def test_forms_of_the_answer_and_tools_that_may_not_be_called(capsys, write):
    assert '# Response Formats\n\n## answer\n\n{"type":"object"}' in text_of(
        capsys, write(response_format={"type": "json_object"})
    )
    assert "# Tools" not in text_of(capsys, write(tool_choice="none"))


def test_what_cannot_be_told_is_noted(capsys, write):
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    status, out, err = run(capsys, write(messages=[image]))
    assert status == 0
    assert "<|start|>user<|message|><|end|>" in out
    assert err == "note: message 0: 1 parts that are not text were left out; Harmony has only text\n"


# --- other modes -----------------------------------------------------------------------------------------------------


def test_what_other_modes_send(capsys, write):
    native = json.loads(text_of(capsys, write(), "--mode", "native"))
    assert native["tools"] == [TOOL]
    assert json.loads(text_of(capsys, write(), "--mode", "native", "--effort", "high"))["reasoning_effort"] == "high"
    prompt = json.loads(text_of(capsys, write(), "--mode", "prompt"))
    assert "tools" not in prompt
    assert "### get_weather" in prompt["messages"][0]["content"]
    hermes = json.loads(text_of(capsys, write(), "--mode", "prompt", "--dialect", "hermes"))
    assert "<tools>" in hermes["messages"][0]["content"]


def test_what_could_not_be_sent_is_noted(capsys, write):
    status, _, err = run(capsys, write(tools=[TOOL, {"type": "web_search"}]), "--mode", "prompt")
    assert status == 0
    assert err == "note: prompt mode cannot offer the tool of type 'web_search'\n"


# --- ids and counts --------------------------------------------------------------------------------------------------


@pytest.mark.oracle
def test_ids_are_those_of_the_text(capsys, write, at_hand):
    text = text_of(capsys, write(), "--date", "none").removesuffix("\n")
    ids = json.loads(text_of(capsys, write(), "--date", "none", "--ids"))
    assert oracle.encoding().decode_utf8(ids) == text
    assert json.loads(text_of(capsys, write(), "--date", "none", "--ids", "--json")) == {"ids": ids}


@pytest.mark.oracle
def test_counts_are_exact_with_the_vocabulary(capsys, write, at_hand):
    counted = json.loads(text_of(capsys, write(), "--count", "--json"))
    ids = json.loads(text_of(capsys, write(), "--ids"))
    without = json.loads(text_of(capsys, write(tools=[]), "--ids"))
    assert counted["estimated"] is None
    assert counted["whole"] == len(ids) == sum(part["tokens"] for part in counted["parts"])
    assert counted["tools"] == len(ids) - len(without)
    assert [part["header"] for part in counted["parts"]] == [
        "system",
        "developer",
        "user",
        "assistant<|channel|>final",
        "user",
        "assistant<|channel|>analysis",
        "assistant to=functions.get_weather<|channel|>commentary json",
        "functions.get_weather to=assistant<|channel|>commentary",
        "assistant",
    ]
    out = text_of(capsys, write(), "--count")
    assert "estimate" not in out
    assert f"{counted['whole']}" in out


@pytest.mark.oracle
def test_counts_of_the_modes(capsys, write, at_hand):
    said = {}
    for mode in ("harmony", "native", "prompt"):
        said[mode] = json.loads(text_of(capsys, write(), "--count", "--json", "--mode", mode))
    assert said["native"] == said["harmony"], "the template writes what we write"
    assert said["prompt"]["tools"] > said["harmony"]["tools"] > 0


def test_without_the_vocabulary_counts_are_estimates_and_say_so(capsys, write):
    out = text_of(capsys, write(), "--count")
    assert "in mode harmony, estimated" in out
    assert f"An estimate: token ids need the vocabulary: get it from {bpe_vocabulary.FILE_URL} and run" in out
    assert "promptools harmony vocab" in json.loads(text_of(capsys, write(), "--count", "--json"))["estimated"]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [({}, ["--dialect", "hermes"]), ({"mode": "prompt", "dialect": "hermes"}, [])],
    ids=["the dialect says it", "the request says it"],
)
def test_the_mode_is_the_one_that_is_meant(capsys, write, options, arguments):
    status, out, _ = run(capsys, write(promptools=options), *arguments)
    assert status == 0
    assert json.loads(out)["messages"] == render(REQUEST["messages"], REQUEST["tools"], dialect="hermes")


@pytest.mark.oracle
def test_without_the_library_counts_are_estimates(capsys, write, at_hand, monkeypatch):
    bpe_vocabulary.load_encoding.cache_clear()
    monkeypatch.setitem(sys.modules, "openai_harmony", None)
    assert "pip install 'promptools-compat[harmony]'" in text_of(capsys, write(), "--count")


@pytest.mark.parametrize(
    ("body", "arguments", "wrong"),
    [
        (REQUEST, ["--ids"], "token ids need the vocabulary: get it from https"),
        (REQUEST, ["--ids", "--mode", "prompt"], "--ids are what mode harmony sends"),
        (REQUEST, ["--date", "yesterday"], "--date 'yesterday' is not a date: write it as 2026-11-21, or 'none'"),
        (REQUEST, ["--calls", "calls.json"], "--calls needs no FILE: a request says all this itself"),
        (REQUEST, ["--single", "--required"], "--single and --required need no FILE"),
        (REQUEST, ["--mode", "native", "--dialect", "hermes"], "--dialect is what mode prompt writes in, mode native"),
        ({**REQUEST, "promptools": {"mode": "harmony"}}, ["--dialect", "hermes"], "mode harmony does not"),
        ([REQUEST], [], "request.json' contains no request"),
        ({}, [], "'messages' must be a list"),
        ({**REQUEST, "promptools": {"tools_in": "user"}}, [], "promptools.tools_in must be one of"),
        ({**REQUEST, "promptools": [1]}, [], "'promptools' must be an object"),
        ({**REQUEST, "reasoning_effort": "huge"}, [], "The reasoning effort 'huge' is not known"),
        ({"messages": [{"role": "tool", "content": "x"}]}, [], "the result of a call that nobody made"),
    ],
)
def test_wrong_use_is_told_in_one_line(capsys, write, body, arguments, wrong):
    status, out, err = run(capsys, write(body), *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("promptools render: ")
    assert err.count("\n") == 1
    assert wrong in err
