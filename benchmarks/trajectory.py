"""A coding agent's conversation of any length: six tools, and turns of reasoning, call and result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

NUMBER, TEXT = {"type": "number"}, {"type": "string"}


def _tool(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    _tool(
        "container.exec",
        "Runs a shell command and returns its output.\n- The arguments are passed to execvp(). Most commands should be "
        'prefixed with ["bash", "-lc"].\n- Always set the workdir when you use the tool.',
        {"command": {"type": "array", "items": TEXT, "description": "The command to execute"}},
        ["command"],
    ),
    _tool("repo_browser.print_tree", "Prints a directory tree.", {"path": TEXT, "depth": NUMBER}, ["path", "depth"]),
    _tool(
        "repo_browser.search",
        "Searches the files below a path.",
        {"path": TEXT, "query": TEXT, "max_results": NUMBER},
        ["path", "query"],
    ),
    _tool(
        "repo_browser.open_file",
        "Opens a file, whole or some of its lines.",
        {"path": TEXT, "line_start": NUMBER, "line_end": NUMBER, "line_numbers": {"type": "boolean"}},
        ["path"],
    ),
    _tool("repo_browser.list_dir", "Lists a directory.", {"path": TEXT, "depth": NUMBER}, ["path"]),
    _tool(
        "repo_browser.apply_patch",
        "Patch a file",
        {"patch": {"type": "string", "default": "*** Begin Patch\n*** End Patch\n"}},
        [],
    ),
]
"""The tools that "In harmony with gpt-oss" (2026) found the model to have been trained on, in OpenAI's form."""

SYSTEM = "You are an engineer. Fix what the issue describes, run the tests, and finish with a short report. " * 4
TASK = (
    "Fix the issue described in the following PR description:\nOrdering a grouped query by a related field adds the "
    "default ordering of the related model to the GROUP BY clause, so that rows which belong together are counted one "
    "by one. Leave the default ordering out where the query is grouped, and add a test.\n"
)
THOUGHT = (
    "The ordering is resolved in file {n} of the compiler before the group by clause is made, so the default ordering "
    "of the related model gets in at line {line}. I should look at how the columns are collected, and then run the "
    "tests of the {n}th module again before I change anything else. "
)


def messages(turns: int) -> list[dict[str, Any]]:
    """Return the conversation after this many turns, each with reasoning, a call and its result."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    for n in range(turns):
        name, arguments, result = _STEPS[n % len(_STEPS)](n)
        call = {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        thought = THOUGHT.format(n=n, line=40 + 7 * n)
        messages.append({"role": "assistant", "content": None, "reasoning": thought, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{n}", "content": result})
    return messages


def _lines(n: int, count: int) -> Iterator[str]:
    for at in range(count):
        number = 40 + 7 * n + at
        yield (
            f"{number:6}\t"
            + (
                f"    def column_{number}(self, alias, field='item_{at}'):",
                f"        if self.query.group_by and alias not in self.seen[{at}]:",
                "            return self.connection.ops.quote_name(alias)",
                "",
                "        # the default ordering of the related model comes from here",
            )[at % 5]
        )


def _tree(n: int) -> tuple[str, dict[str, Any], str]:
    listed = "\n".join(f"|   |-- compiler_{n}_{at}.py" for at in range(25))
    return "repo_browser.print_tree", {"path": f"src/db/part_{n}", "depth": 2}, f"src/db\n|-- sql\n{listed}\n"


def _search(n: int) -> tuple[str, dict[str, Any], str]:
    lines = "\n".join(f"src/db/sql/compiler_{n}.py:{40 + at}:    order_by = self.get_order_by()" for at in range(12))
    arguments = {"path": "src/db", "query": "get_order_by", "max_results": 20}
    return "repo_browser.search", arguments, lines


def _open(n: int) -> tuple[str, dict[str, Any], str]:
    arguments = {"path": f"src/db/sql/compiler_{n}.py", "line_start": 40 + 7 * n, "line_end": 80 + 7 * n}
    return "repo_browser.open_file", arguments, "\n".join(_lines(n, 40))


def _test(n: int) -> tuple[str, dict[str, Any], str]:
    ran = "\n".join(f"test_ordering_{at} (ordering.tests.OrderingTests) ... ok" for at in range(8))
    output = f"<returncode>0</returncode>\n<output>\n{ran}\n\nRan 8 tests in 0.{n:03}s\n\nOK\n</output>"
    return "container.exec", {"command": ["bash", "-lc", f"./runtests.py ordering.part_{n}"]}, output


_STEPS = (_tree, _search, _open, _test)
