"""Who may import whom, by the table of layers in docs/architecture.md.

A module imports from layers below its own, or from its own package; layers up to `exchange` do no I/O.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from many_rows import every_row

import promptools

ROOT = Path(promptools.__file__).parent

PAGE = ROOT.parent / "docs" / "architecture.md"
LAYER = re.compile(r"^\| (\d+) \| ((?:`[\w.]+`(?:, )?)+) \|", re.MULTILINE)
ROWS = {
    name.strip("`"): int(layer)
    for layer, names in LAYER.findall(PAGE.read_text(encoding="utf-8"))
    for name in names.split(", ")
}
PURE = ROWS["exchange"]
NOT_PURE = {
    "aiohttp", "anyio", "asyncio", "concurrent", "http", "httpx", "httpx2", "logging", "multiprocessing", "ollama",
    "openai", "os.environ", "os.getenv", "random", "requests", "secrets", "select", "socket", "ssl", "subprocess",
    "tenacity", "threading", "time", "urllib.request", "uuid",
}  # fmt: skip


def package(module: str) -> str:
    """`promptools.wire.sse` to `wire`, `promptools.harness.agent.tape` to `harness.agent`."""
    path = module.removeprefix("promptools").lstrip(".")
    while path not in ROWS and "." in path:
        path = path.rpartition(".")[0]
    return path


def imported(source: str, module: str) -> Iterator[str]:
    """Every module that `source` names in an import, and the environment where it reads it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            yield f"os.{node.attr}"


def wrong(source: str, module: str) -> list[str]:
    """What `module` imports and must not."""
    own = package(module)
    row = ROWS[own]
    found = []
    for name in imported(source, module):
        if name == "promptools":  # to find the folder it lies in
            continue
        if name.startswith("promptools."):
            other = package(name)
            if other == own:
                continue
            # `from promptools import x` of a public name, or of a package
            if other not in ROWS:
                found.append(f"{module} imports the package's front door: {name}")
            elif ROWS[other] >= row:
                found.append(f"{module} (row {row}) imports {name} (row {ROWS[other]})")
        elif row <= PURE and any(name == each or name.startswith(f"{each}.") for each in NOT_PURE):
            found.append(f"{module} (row {row}, pure) imports {name}")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["promptools", *path.relative_to(ROOT).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name != "promptools":
            yield name, path


def test_every_module_has_a_row():
    assert [name for name, _ in modules() if package(name) not in ROWS] == []


@every_row(modules(), name=lambda row: row[0], group=lambda row: package(row[0]) or "promptools")
def test_imports_go_down(row):
    module, path = row
    assert wrong(path.read_text(encoding="utf-8"), module) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("promptools.wire.sse", "import promptools.exchange.runner"),
        ("promptools.wire.sse", "from promptools.modes import mode"),
        ("promptools.modes.tool_request", "from promptools.fallback import rules"),
        ("promptools.parsing.events", "from promptools.engine import parse"),
        ("promptools.errors", "from promptools import parse"),
        ("promptools.exchange.runner", "import time"),
        ("promptools.exchange.runner", "def f():\n    from openai import OpenAI"),
        ("promptools.profiles.config", "import os\nkey = os.environ['KEY']"),
        ("promptools.fallback", "from os import environ"),
        ("promptools.client", "from promptools.harness.sandbox import LocalSandbox"),
        ("promptools.harness.sandbox.local", "from promptools.harness.agent import Agent"),
    ],
)
def test_a_wrong_import_is_seen(module, source):
    assert len(wrong(source, module)) == 1
