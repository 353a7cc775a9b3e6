"""What a model says that repairs a small bug with gpt-oss' own tools: each reply by a phrase of the result before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from promptools.lab.script import ScriptedReply
from promptools.testing import calls_as_text

BROKEN = "def add(a, b):\n\treturn a - b\n"
TEST = "from sums import add\n\nassert add(2, 3) == 5\n"
PATCH = "*** Begin Patch\n*** Update File: sums.py\n@@\n-\treturn a - b\n+\treturn a + b\n*** End Patch\n"
RUN = "python3 test_sums.py && echo tests passed | tr a-z A-Z"
TASK = "Repair the sum of two numbers."
FIXED = "The bug is repaired: add() subtracted."

STEPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (TASK, "repo_browser.list_dir", {"path": ".", "depth": 2}),
    ("0 folders, 2 files", "repo_browser.search", {"path": ".", "pattern": "def add"}),
    ("sums.py:1:def add(a, b):", "repo_browser.open_file", {"file_path": "sums.py"}),
    ("return a - b", "repo_browser.apply_patch", {"patch": PATCH}),
    ("M sums.py", "container.exec", {"command": ["bash", "-lc", RUN], "timeout": 10000}),
)
"""A phrase of the result before, and the call that follows it: with names of tools and parameters that models use for
the declared ones."""
NAMES = ["print_tree", "search", "open_file", "apply_patch", "exec"]
"""The declared names of what is called."""
PASSED = "TESTS PASSED"
"""What the test run prints, and no command, prompt or reply holds."""

THOUGHT = "<|channel|>analysis<|message|>Next step.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
HEADERS = {
    "": "<|channel|>analysis to={name} code<|message|>",
    " [role]": " to={name}<|channel|>analysis code<|message|>",
    " [twice]": "<|channel|>assistant to={name}<|channel|>analysis code<|message|>",
    " [place]": "<|channel|>{name}<|channel|>analysis code<|message|>",
}
"""Headers as gpt-oss-20b writes them: two good ones, and two of those that are malformed in 8 % of its calls. Each has
a mark, which the task and all results end with where a test wants it."""

FAULTS: tuple[tuple[str, tuple[str, dict[str, Any]] | str], ...] = (
    ("Run for ever.", ("container.exec", {"cmd": "sleep 60"})),
    ("the command was ended after", "The tests take too long."),
    ("The last command timed out after", "The tests take too long."),
    ("Search the web.", ("browser.search", {"query": "x"})),
    ("there is no tool 'browser.search'", "I cannot search the web."),
    ("Read on and on.", ("repo_browser.search", {"path": ".", "query": "more"})),
    ("Summarize the work", "There was much to read."),
    ("There was much to read.", "I have read enough."),
)
"""Where something goes wrong: a phrase, and the call or the text that follows it."""
HEADERS_OF_FAULTS = {
    "container.exec": HEADERS[""],
    "browser.search": "<|channel|>{name} to=assistant<|channel|>analysis code<|message|>",
    "repo_browser.search": HEADERS[""],
}

SHARED = ("", " [twice]")
"""Headers of the models that other tests share: a good one and a malformed one."""


def gpt_oss(marks: Iterable[str] = HEADERS) -> list[ScriptedReply]:
    """Return the replies of gpt-oss, with the headers of `marks`."""
    calls = [
        ScriptedReply(f"{phrase}{mark}", f"{THOUGHT}{HEADERS[mark].format(name=name)}{json.dumps(arguments)}<|call|>")
        for phrase, name, arguments in STEPS
        for mark in marks
    ]
    faults = [
        ScriptedReply(phrase, _in_harmony(*reply) if isinstance(reply, tuple) else f"{THOUGHT}{FINAL}{reply}<|return|>")
        for phrase, reply in FAULTS
    ]
    return [*calls, ScriptedReply(PASSED, f"{THOUGHT}{FINAL}{FIXED}<|return|>"), *faults]


def _in_harmony(name: str, arguments: dict[str, Any]) -> str:
    return f"{THOUGHT}{HEADERS_OF_FAULTS[name].format(name=name)}{json.dumps(arguments)}<|call|>"


def _without_brace(call: str) -> str:
    return call.replace("}\n</tool_call>", "\n</tool_call>")


def _fenced(call: str) -> str:
    return call.replace("<tool_call>\n", "<tool_call>\n```json\n").replace("\n</tool_call>", "\n```\n</tool_call>")


def _in_python(call: str) -> str:
    head, body, tail = call.split("\n")
    return f"{head}\n{json.loads(body)!r}\n{tail}"


SHAPES: dict[str, Callable[[str], str]] = {
    "": lambda call: call,
    " [closer]": lambda call: call.removesuffix("\n</tool_call>"),
    " [opener]": lambda call: call.removeprefix("<tool_call>\n"),
    " [brace]": _without_brace,
    " [fence]": _fenced,
    " [quotes]": _in_python,
}
"""How a call in Hermes tags is written: well, and malformed as models of Qwen write it (tests/cases/hermes has the
sources). Each has a mark, as `HEADERS` have."""


def in_hermes(name: str, arguments: dict[str, Any], mark: str = "") -> str:
    """Return a call in Hermes tags, in the shape of a mark."""
    return "Next step.\n" + SHAPES[mark](calls_as_text("hermes", [(name, arguments)]))


def hermes(marks: Iterable[str] = ("",)) -> list[ScriptedReply]:
    """Return the replies of a model that writes calls in Hermes tags, as Qwen's do, in the shapes of `marks`."""
    calls = [
        ScriptedReply(f"{phrase}{mark}", in_hermes(name, arguments, mark))
        for phrase, name, arguments in STEPS
        for mark in marks
    ]
    faults = [
        ScriptedReply(phrase, in_hermes(*reply) if isinstance(reply, tuple) else reply) for phrase, reply in FAULTS
    ]
    return [*calls, ScriptedReply(PASSED, FIXED), *faults]
