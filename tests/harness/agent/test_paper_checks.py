"""The checks of the paper's policy, each alone and in their order; `tests/e2e/test_llamacpp_agent.py` has them live."""

from dataclasses import replace
from pathlib import Path

import pytest

from promptools.harness.agent import harness_errors
from promptools.harness.agent.loop_effects import AccumulatedReply
from promptools.harness.agent.policies import KINDS, HarmonyReply, check_default, check_paper
from promptools.harness.agent.tool_loop import announces_call
from promptools.harness.agent.toolbox import Toolbox
from promptools.harness.toolsets import AgentTool
from promptools.modes.structured_calls import PendingCall
from promptools.types import Tool


def read(path: str, line: int = 1) -> str:
    """Read a file."""
    return path


def run(command: str, timeout: float = 1, **_: object) -> str:
    """Run a command; models pass a time-out that is not declared."""
    return command


COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
TOOLBOX = Toolbox(
    [
        read,
        AgentTool(Tool("run", "Run.", COMMAND), run),
        AgentTool(Tool("python", "Run code.", CODE, free_text="code"), print),
    ]
)
CALL = AccumulatedReply(calls=[PendingCall(None, "1", "read", ['{"path": "a"}'])])
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>Yes."


def to(recipient="functions.read", arguments='{"path": "a"}', header="commentary", kind="<|constrain|>json"):
    return f"<|channel|>{header} to={recipient} {kind}<|message|>{arguments}"


def name_of(text, reason="stop", usage=None, max_tokens=None, reply=CALL):
    """Return the name of the exception that a reply leads to; empty for one with a call that is run."""
    made = replace(reply, usage=usage, finish_reason=reason)
    try:
        check_paper(made, None if text is None else HarmonyReply(text, reason), TOOLBOX, max_tokens)
    except harness_errors.HarnessError as error:
        return type(error).__name__
    return ""


FULL = {"completion_tokens": 10}
TWO_CALLS = to() + "<|end|><|start|>assistant" + to()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (THOUGHT + to(), ""),
        (to(header="analysis", recipient="python", arguments="print(1)", kind="code"), ""),
        (f"{THOUGHT}<|channel|>commentary<|message|>I read.<|end|><|start|>assistant{to()}", ""),  # a preamble
        (THOUGHT + FINAL, "Submitted"),
        (f"{FINAL}<|return|>", "Submitted"),
        ("", "HarmonyParsingError"),
        ("Yes.", "HarmonyParsingError"),
        ("<|channel|>final", "HarmonyParsingError"),
        (f"<|channel|>assistant to=functions.read{to()}", "HarmonyParsingError"),
        ("<|message|>Yes.", "HarmonyMessageMissingChannel"),
        ("<|message|>Yes.<|end|><|start|>assistant" + TWO_CALLS, "HarmonyMessageMissingChannel"),
        (THOUGHT * 2 + TWO_CALLS, "MultipleReasoningMessages"),
        (TWO_CALLS, "MultipleToolCalls"),
        (f"{FINAL}<|end|><|start|>assistant{FINAL}<|end|><|start|>assistant{to()}", "MultipleFinalMessages"),
        (f"{FINAL}<|end|><|start|>assistant{to(recipient='functions.no')}", "ToolCallAndFinalMessage"),
        ("<|channel|>analysis<|message|>Hm.", "NoToolCallNoFinalMessage"),
        ("<|channel|>commentary<|message|>I read.", "NoToolCallNoFinalMessage"),
        (to(recipient="functions."), "ToolNameParsingError"),
        (to(recipient="functions.no", arguments="{"), "UnknownToolCalled"),
        (to(arguments="{"), "ToolCallArgParsingError"),
        (to(arguments="[1]"), "ToolCallArgNotObject"),
        (to(arguments='{"line": "x"}'), "UnknownToolCallArg"),
        (to(arguments='{"path": "a", "line": "x"}'), "ToolCallArgTypeError"),
        (to(arguments='{"path": "a", "colour": "red"}'), "UnknownToolCallArg"),
        (to("functions.run", '{"command": "ls", "timeout": 10}'), ""),
        (to("functions.run", '{"command": "ls", "colour": "red"}'), "UnknownToolCallArg"),
        (to(arguments='{"file_path": "a"}'), ""),
    ],
)
def test_each_condition_and_which_comes_first(text, name):
    assert name_of(text) == name


@pytest.mark.parametrize(
    ("reason", "max_tokens", "name"),
    [
        ("length", 10, "LongGeneration"),
        ("abort", 10, "UnexpectedFinishReason"),
        ("stop", 10, "MaxNewTokensExceeded"),
        ("stop", 11, "HarmonyParsingError"),
        ("stop", None, "HarmonyParsingError"),
    ],
)
def test_how_the_reply_ended_is_checked_first(reason, max_tokens, name):
    assert name_of("no Harmony", reason, FULL, max_tokens) == name


def test_a_call_that_the_exchange_did_not_find_is_none():
    assert name_of(to(), reply=AccumulatedReply()) == "UnknownToolCalled"


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        (CALL, ""),
        (AccumulatedReply(content="Yes."), "Submitted"),
        (AccumulatedReply(reasoning="Hm."), "NoToolCallNoFinalMessage"),
        (AccumulatedReply(content="Yes.", calls=CALL.calls), "ToolCallAndFinalMessage"),
        (AccumulatedReply(calls=CALL.calls * 2), "MultipleToolCalls"),
        (AccumulatedReply(calls=[PendingCall(None, "1", "read", ["{"])]), "ToolCallArgParsingError"),
    ],
)
def test_in_other_modes_the_messages_are_those_that_the_reply_amounts_to(reply, name):
    made = name_of(None, reply=reply)
    assert made == name


def test_there_are_the_papers_thirteen_and_six():
    def below(kind):
        return {one.__name__ for one in kind.__subclasses__()}

    ours = {"ToolCallArgNotObject", "ToolCallArgTypeError"}
    assert len(below(harness_errors.NonTerminatingError) - ours) == 13
    assert len(below(harness_errors.TerminatingError)) == 6


def test_the_page_has_the_kinds_of_failure_that_become_exceptions():
    page = (Path(__file__).parents[3] / "docs" / "tasks" / "run-an-agent.md").read_text(encoding="utf-8")
    rows = {
        line.split("`")[1]: line.rpartition("|")[0].rpartition("|")[2] for line in page.splitlines() if "| `" in line
    }
    assert {kind: error.__name__ for kind, error in KINDS.items() if f"`{kind}`" not in rows[error.__name__]} == {}


def test_the_default_policy_lets_a_call_win():
    check_default(AccumulatedReply(content="Yes.", calls=CALL.calls, finish_reason="length"))
    with pytest.raises(harness_errors.LongGeneration):
        check_default(AccumulatedReply(content="Yes.", finish_reason="length"))


@pytest.mark.parametrize(
    ("content", "announced"),
    [
        ("Let me look at the tests:", True),
        ("The bug is in a.py. Now I'll apply the patch.", True),
        ("Okay, let's run the tests", True),
        ("I will first check the file…", True),
        ("**Next, I’ll open the file.**", True),
        ("I'm going to search for it.\n", True),
        ("The bug is repaired.", False),
        ("Let me know if you need more.", False),
        ("I'll run the tests if you want me to.", False),
        ("Shall I run the tests?", False),
        ("I will run the tests once you have merged it.", False),
        ("Let me look at this: the cause is a typo. It is repaired.", False),
        ("You should run the tests.", False),
        ("I'll explain: it adds two numbers.", False),
        ("", False),
    ],
)
def test_what_announces_a_call(content, announced):
    assert announces_call(content) is announced
