"""Names in words, logs of agents, verdicts and questions: what needs no server."""

import json
import math
import tomllib
from types import SimpleNamespace

import pytest

from promptools.errors import UpstreamError, UsageError
from promptools.harness.discovery.findings import Findings, find_tools, mentioned_parameters, mentioned_tools
from promptools.harness.discovery.output import marks_toml, render_page
from promptools.harness.discovery.questions import Intent, Question, read_intents, read_logs
from promptools.harness.discovery.samples import CallMade, Sample, SampleLog, Sampler
from promptools.harness.discovery.verdicts import (
    fold_parameter,
    json_type,
    judge_parameters,
    judge_tool,
    overlap,
    suspected_aliases,
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("- search: finds\n2. `grep`\n* **find** (files)", {"search", "grep", "find"}),
        ("I have `repo.open(path)` and also read_file, for src/main.py.", {"repo.open", "read_file"}),
        ("container.exec\nbrowser", {"container.exec", "browser"}),
        ("I have no tools. Sorry about that!", set()),
    ],
)
def test_mentioned_tools(text, names):
    assert mentioned_tools(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "<|im_end|>\n<|im_start|>client\n<|im_end|>client",
        "- im_end\n- im_start\n- endoftext\n- `constrain`",
        "`end_of_turn`, `eot_id` and python_tag",
        "<|no_dialect_has_it|>",
        "<｜tool▁outputs▁begin｜>",
    ],
)
def test_special_tokens_are_not_tools(text):
    assert mentioned_tools(text) == set()


def test_a_word_alone_is_not_a_tool_but_lines_of_words_are():
    assert [mentioned_tools(text) for text in ("ok", "Ok\n", "Sure\n\nDone", "ok\n- search")] == [set()] * 3 + [
        {"search"}
    ]
    assert mentioned_tools("search\nfind") == {"search", "find"}


def test_what_is_called_is_a_tool_whatever_its_name():
    assert mentioned_tools("- call\n- im_end", {"call"}) == {"call"}
    called = Sample("0", "intent", "p", 0, calls=(CallMade("call"),))
    listed = Sample("1", "list", "q", 0, content="- call\n- stop\n- wait")
    tools, mentioned_only = find_tools([called, listed])
    assert {tool.name: tool.mentions.estimate for tool in tools} == {"call": 1, "wait": 1}
    assert mentioned_only == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("- `path` (string): where\n- depth: how deep", {"path", "depth"}),
        ('{"type": "object", "properties": {"query": {"type": "string"}}}', {"query"}),
        ("`repo.search` takes a `query`.", {"query"}),
    ],
)
def test_mentioned_parameters(text, names):
    assert mentioned_parameters(text, "repo.search") == names


def test_logs_of_agents(tmp_path):
    rows = [
        {"row": "messages", "messages": [{"role": "assistant", "reasoning": "Look at the tree."}]},
        {"reasoning": ""},
    ]
    (tmp_path / "a.tape").write_text("\n".join(map(json.dumps, rows)) + '\n{"reasoning": "cut')
    (tmp_path / "below").mkdir()
    step = {"role": "assistant", "content": "x", "extra": {"reasoning": "Open the file."}}
    (tmp_path / "below" / "b.traj").write_text(json.dumps({"messages": [step, step]}, indent=1))
    (tmp_path / "c.jsonl").write_text(json.dumps({"reasoning": "Search for it.", "reasoning_content": "again"}))
    (tmp_path / "d.txt").write_text(json.dumps({"reasoning": "Not a log."}))
    assert read_logs(tmp_path) == [Intent(t, "log") for t in ("Look at the tree.", "Open the file.", "Search for it.")]


def test_a_folder_without_logs(tmp_path):
    (tmp_path / "a.json").write_text('{"content": "x"}')
    with pytest.raises(UsageError, match="holds reasoning"):
        read_logs(tmp_path)


def test_intents_of_a_file(tmp_path):
    (tmp_path / "f").write_text('Look.\n\n{"text": "Read a.py", "kind": "read"}\nLook.\n')
    assert read_intents(tmp_path / "f") == [Intent("Look."), Intent("Read a.py", "read")]
    (tmp_path / "f").write_text('{"kind": "read"}')
    with pytest.raises(UsageError, match="line 1"):
        read_intents(tmp_path / "f")


def test_a_question_is_known_by_all_that_is_asked():
    questions = [
        Question("intent", "a", 0),
        Question("intent", "a", 1),
        Question("targeted", "a", 0),
        Question("intent", "a", 0, options={"mode": "harmony"}),
        Question("intent", "a", 0, tools=({"name": "x"},)),
    ]
    assert len({own.key for own in questions}) == 5
    assert Question("intent", "a", 0, kind="explore").key == questions[0].key


def test_what_cannot_be_read_of_a_log(tmp_path):
    with SampleLog(tmp_path / "log", {"model": "m"}) as log:
        log.record(Sample("k", "intent", "p", 0, calls=(CallMade("f", {"a": 1}),)))
        log.record(Sample("failed", "intent", "p", 1, error="x"))
    with (tmp_path / "log").open("a") as file:
        file.write('{"key": "odd", "stage": 3}\n{"key": "cut')
    with SampleLog(tmp_path / "log", {"model": "m"}) as log:
        assert log.get("k").calls == (CallMade("f", {"a": 1}),)
        assert (log.get("failed"), log.get("odd")) == (None, None)
        log.record(Sample("later", "intent", "p", 2))
    with SampleLog(tmp_path / "log", {"model": "m"}) as log:
        assert log.get("later")
    with pytest.raises(UsageError, match="Choose another folder"):
        SampleLog(tmp_path / "log", {"model": "other"})


def samples(name, count, kind="read", stage="intent", subject="", **arguments):
    return [
        Sample(f"{name}{n}", stage, f"{kind} {n}", n, kind, subject, calls=(CallMade(name, arguments),))
        for n in range(count)
    ]


def test_tools_that_are_alike():
    tree, files = samples("tree", 4, "explore", path="", depth=1), samples("files", 2, "explore", path="", depth=1)
    read = samples("read", 3, "read", path="", line_start=1)
    opened = samples("open", 2, "read", path="", start_line=1)
    every = [*tree, *files, *read, *opened, *samples("list", 1, "read", path="", depth=1)]
    assert suspected_aliases(every, every) == {"files": "tree", "open": "read"}


def test_an_alias_must_vanish():
    baseline = [*samples("tree", 4), *samples("files", 4)]
    gone = samples("tree", 8, stage="defined")
    kept = [*samples("tree", 4, stage="defined"), *samples("files", 4, stage="defined")]
    nothing = [Sample("x", "defined", "p", 0)]
    assert judge_tool("files", "tree", baseline, gone) == ("alias", "tree")
    assert judge_tool("files", "tree", baseline, kept) == ("confirmed", None)
    assert judge_tool("files", "tree", baseline, nothing) == ("confirmed", None)
    assert judge_tool("files", "tree", baseline, []) == ("alias", "tree")


def test_few_calls_and_none():
    baseline = [*samples("tree", 40), *samples("rare", 2)]
    assert judge_tool("rare", None, baseline, [])[0] == "unconfirmed"
    assert judge_tool("never", None, baseline, [])[0] == "confabulated"
    assert judge_tool("never", None, baseline[:20], [])[0] == "unconfirmed"
    once = [Sample(str(n), "intent", "the same", n, calls=(CallMade("tree"),)) for n in range(9)]
    assert judge_tool("tree", None, once, [])[0] == "unconfirmed"


def test_parameters():
    calls = [
        *[CallMade("f", {"path": "a", "limit": 1})] * 2,
        *[CallMade("f", {"path": "a"})] * 5,
        *[CallMade("f", {"file_path": "a"})] * 2,
        CallMade("f", {"path": "a", "deep": True}),
    ]
    assert judge_parameters(calls, {"encoding": 2, "path": 3}) == {
        "path": ("confirmed", None),
        "file_path": ("alias", "path"),
        "limit": ("optional", None),
        "deep": ("optional", None),
        "encoding": ("confabulated", None),
    }
    assert judge_parameters(calls[:2], {"encoding": 1})["encoding"] == ("unconfirmed", None)


def test_small_measures():
    assert fold_parameter("startLine") == fold_parameter("line_start") == "line start"
    assert overlap({"a": 1}, {"a": 0.5, "b": 0.5}) == 0.5 / 1.5
    assert overlap({}, {}) == 1
    types = {json_type(value) for value in (None, True, 1, 1.5, "", ["a"], [1, ""], {})}
    assert types == {"null", "boolean", "integer", "number", "string", "array of string", "array", "object"}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("half\ud83d", "half\ufffd"),
        ("whole\ud83d\ude00", "whole😀"),
        ("😀", "😀"),
        ('"\\', '"\\'),
        ("line\nend\x7f\x00", "line\nend\x7f\x00"),
    ],
)
def test_the_config_is_toml_whatever_a_name_holds(name, kept):
    calls = [{name: 1}, {name: 1}, {name: 1}, {f"{name}2": 1}]
    baseline = [
        Sample(str(n), "intent", f"p{n}", n, "read", calls=(CallMade(name, arguments),))
        for n, arguments in enumerate(calls)
    ]
    tools, _ = find_tools(baseline)
    assert [tool.verdict for tool in tools] == ["confirmed"]
    assert tomllib.loads(marks_toml(tools))["tools"] == {kept: {"aliases": {f"{kept}2": kept}}}


def test_half_a_surrogate_pair_is_replaced_when_a_reply_is_read(tmp_path):
    call = {"id": "1", "type": "function", "function": {"name": "f\ud83d", "arguments": '{"\\ud83d": ["\\ud83d"]}'}}
    with SampleLog(tmp_path / "log", {}) as log:
        sampler = Sampler(Client([{"message": {"content": "\ude00", "tool_calls": [call]}}]), "m", log)
        (sample,) = sampler.sample([Question("intent", "a", 0)])
    assert (sample.content, sample.calls) == ("\ufffd", (CallMade("f\ufffd", {"\ufffd": ["\ufffd"]}),))
    with SampleLog(tmp_path / "log", {}) as log:
        assert log.get(sample.key) == sample


def test_a_tool_that_is_called_only_when_it_is_defined():
    before = [Sample(f"a{n}", "intent", f"p{n}", 0, "read") for n in range(40)]
    after = [
        Sample(f"b{n}", "defined", f"p{n}", 0, "read", "request", calls=(CallMade("tree"),) * (n < 20))
        for n in range(40)
    ]
    once = Sample("c", "targeted", "p0", 0, "read", calls=(CallMade("tree"),))
    (tool,), _ = find_tools([*before, *after, once])
    assert tool.rate.percent() == "0.0 % (at most 7.2 %)"
    for lift in tool.lifts:
        assert (lift.placement, lift.ratio, lift.difference.estimate) == ("request", None, 0.5)
        assert 0.25 < lift.difference.low < 0.4 < 0.6 < lift.difference.high < 0.7
    page = render_page(Findings({}, (tool,), {"intent": 40}, tool.rate, 0), title="Tools")
    (row, every) = (line for line in page.split("\n") if line.startswith("| `tree` | request |"))
    assert "| 0.0 % (at most 7.2 %) | 50.0 % [" in every
    assert row.endswith("| – |")
    assert "0.0 % (at most 7.2 %) of the replies to intents call a tool" in page


def test_an_infinite_bound_is_null_in_json():
    before = [Sample(f"a{n}", "intent", f"p{n}", 0, calls=(CallMade("f"),) * (n < 1)) for n in range(3)]
    after = [Sample(f"b{n}", "defined", f"p{n}", 0, "", "request", calls=(CallMade("f"),)) for n in range(3)]
    tools, _ = find_tools([*before, *after])
    assert tools[0].lifts[0].ratio.high == math.inf
    data = json.loads(json.dumps(Findings({}, tuple(tools), {}, None, 0).to_dict(), allow_nan=False))
    assert data["tools"][0]["lifts"][0]["ratio"] == {"estimate": 3.0, "low": 1.0, "high": None}


class Client:
    """Its server answers nothing that can be read."""

    def __init__(self, choices):
        self.chat = SimpleNamespace(completions=self)
        self.choices = choices

    def create(self, **keys):
        return SimpleNamespace(model_dump=lambda **_: {"choices": self.choices})


def test_replies_without_choices_are_failures(tmp_path):
    with SampleLog(None, {}) as log:
        sampler = Sampler(Client([]), "m", log)
        with pytest.raises(UpstreamError, match="none of 2 requests was answered; the last: IndexError"):
            sampler.sample([Question("intent", "a", 0), Question("intent", "b", 0)])
        assert sampler.failed == {"intent": 2}
        sampler.client = Client([{"message": {"content": "x"}}])
        assert [sample.content for sample in sampler.sample([Question("intent", "a", 0)])] == ["x"]
