"""Who may import whom. A module imports from rows below its own, or from its own package; rows 0 to 5 do no I/O."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import promptools

ROOT = Path(promptools.__file__).parent

ROWS = {
    "errors": 0,
    "types": 0,
    "schema": 1,
    "parsing": 1,
    "dialects": 2,
    "harmony": 2,
    "profiles": 2,
    "parsing.engine": 3,
    "wire": 3,
    "modes": 4,
    "fallback": 4,
    "exchange": 5,
    "transport": 6,
    "client": 7,
    "frameworks": 7,
    "ollama": 7,
    "proxy": 7,
    "agent": 7,
    "testing": 7,
    "lab": 7,
    "wrapping": 8,
    "cli": 8,
    "__main__": 9,
}
BESIDE = {("parsing.engine", "parsing"), ("dialects", "harmony"), ("profiles", "dialects")}
"""Who may import whom of the same row, or of a package that it lies in: Harmony has a package of its own to be read
and written by, and becomes a dialect like the others; a profile names a dialect, which has to be one."""
PURE = 5
NOT_PURE = {
    "aiohttp", "anyio", "asyncio", "concurrent", "http", "httpx", "httpx2", "logging", "multiprocessing", "ollama",
    "openai", "os.environ", "os.getenv", "random", "requests", "secrets", "select", "socket", "ssl", "subprocess",
    "tenacity", "threading", "time", "urllib.request", "uuid",
}  # fmt: skip


def package(module: str) -> str:
    """`promptools.parsing.engine.plan` to `parsing.engine`, `promptools.wire.sse` to `wire`."""
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
            if other == own or {own, other} == {"errors", "types"}:
                continue
            # `from promptools import x` of a public name, or of a package
            if other not in ROWS:
                found.append(f"{module} imports the package's front door: {name}")
            elif ROWS[other] >= row and (own, other) not in BESIDE:
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


@pytest.mark.parametrize(("module", "path"), [pytest.param(name, path, id=name) for name, path in modules()])
def test_imports_go_down(module, path):
    assert wrong(path.read_text(encoding="utf-8"), module) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("promptools.wire.sse", "import promptools.exchange.run"),
        ("promptools.wire.sse", "from promptools.modes import ask"),
        ("promptools.modes.ask", "from promptools.fallback import table"),
        ("promptools.parsing.events", "from promptools.parsing import engine"),
        ("promptools.errors", "from promptools import parse"),
        ("promptools.exchange.run", "import time"),
        ("promptools.exchange.run", "def f():\n    from openai import OpenAI"),
        ("promptools.profiles.config", "import os\nkey = os.environ['KEY']"),
        ("promptools.fallback", "from os import environ"),
    ],
)
def test_a_wrong_import_is_seen(module, source):
    assert len(wrong(source, module)) == 1
