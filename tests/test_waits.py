"""No test depends on how fast the machine is: limits are minutes, and how long something took is not asserted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from many_rows import every_row

HERE = Path(__file__).parent
A_MINUTE = 60
"""The least seconds of a limit that only keeps a lost test from waiting for ever; five minutes are usual."""
LIMITED = {"wait", "join", "acquire", "communicate", "result", "wait_for", "fail_after", "timeout", "settimeout",
           "create_connection", "Barrier", "Client", "AsyncClient"}  # fmt: skip
"""Calls whose last argument, or `timeout=`, is such a limit."""
CLOCKS = {"monotonic", "perf_counter", "time", "process_time"}
SHORT = {
    "ollama/test_ollama_package.py": {"test_a_server_that_is_too_slow_is_httpxs_own_error"},
    "proxy/test_drain.py": {"test_a_slow_reader_holds_the_server_back"},
    "proxy/test_proxy.py": {"test_no_server_is_a_502_and_a_slow_one_a_504"},
    "e2e/rigs.py": {"Servers._waited"},
    "proxy/test_admission_limits.py": {"test_a_bucket_is_refilled_steadily"},
    "proxy/test_uploads.py": {"test_an_upload_of_300_mb_to_a_slow_server_leaves_the_memory_flat"},
    "harness/toolsets/test_repo_browser.py": {"test_exchanging_a_folder_for_a_link_all_the_time_reveals_nothing"},
}
"""Functions with shorter ones, which have to run out, or are a step of a loop, or times of the test's own clock."""
APART = ("e2e/test_ollama_", "e2e/test_vllm_", "harness/sandbox/test_bubblewrap.py", "proxy/test_shared_state.py")
"""At servers with time-outs of their own, in `make e2e`."""


def modules() -> list[str]:
    names = (str(path.relative_to(HERE)) for path in HERE.rglob("*.py"))
    return sorted(name for name in names if not name.startswith(APART))


def is_clocked(function: ast.AST) -> bool:
    marks = getattr(function, "decorator_list", [])
    return any(ast.unparse(mark) == "pytest.mark.clock" for mark in marks)


def name_of(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def is_short(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float) and 0 < value.value < A_MINUTE


def short_limits(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or name_of(call.func) not in LIMITED:
            continue
        last = call.args[2:] if name_of(call.func) == "Barrier" else call.args[-1:]  # its first one counts the waiting
        given = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"] or last
        if isinstance(call.func, ast.Name | ast.Attribute) and any(map(is_short, given)):
            yield f"line {call.lineno}: {ast.unparse(call)}"


def durations(node: ast.AST) -> Iterator[str]:
    for compared in ast.walk(node):
        if isinstance(compared, ast.Assert):
            for part in ast.walk(compared.test):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) and reads_clock(part.left):
                    yield f"line {compared.lineno}: {ast.unparse(compared.test)}"


def reads_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) in CLOCKS


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The functions of a module and of its classes, each with those inside it, by name; what else there is has none."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{node.name}.")
        else:
            yield prefix + getattr(node, "name", ""), node


def found(name: str, source: str) -> list[str]:
    nodes = [node for known, node in functions(ast.parse(source)) if known not in SHORT.get(name, ())]
    return [text for node in nodes if not is_clocked(node) for text in (*short_limits(node), *durations(node))]


@every_row(modules(), name=str, group=lambda row: row.partition("/")[0])
def test_limits_are_minutes_and_no_time_is_asserted(row: str) -> None:
    assert found(row, (HERE / row).read_text("utf-8")) == []


@pytest.mark.parametrize(
    "line",
    ["x.wait(5)", "x.wait(timeout=5)", "f(g.join(0.5))", "httpx.Client(timeout=10)", "assert time.monotonic() - a < 9"],
)
def test_it_finds_them(line: str) -> None:
    assert len(found("a.py", f"def test_a():\n    {line}\n")) == 1
    assert found("a.py", f"@pytest.mark.clock\ndef test_a():\n    {line}\n") == []


@pytest.mark.parametrize("line", ["x.wait(300)", "x.wait()", "', '.join(a)", "assert now - a < 9", "bucket.wait(0.0)"])
def test_it_finds_nothing_else(line: str) -> None:
    assert found("a.py", f"def test_a():\n    {line}\n") == []
