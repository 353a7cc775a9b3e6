"""What the start costs: `from promptools import parse, StreamParser`, a command, and the first reply that is read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import promptools

HEAVY = {"httpx", "httpx2", "jsonschema", "ollama", "openai", "pydantic", "regex", "rich", "tenacity", "xllamacpp"}
MODULES = 99
"""Modules that may be loaded beyond those of Python's own start, the standard library's included."""
LIMIT = 0.060
"""Seconds beyond Python's own start, on a machine that has nothing else to do."""
ASYNCIO = 0.030
"""Seconds that `import asyncio` takes on such a machine: the yardstick for one that is busy or slow."""

PROBE = """
import json, sys
opened = []
def watch(event, arguments):
    name = str(arguments[0]) if arguments else ""
    code = name.endswith((".py", ".pyc", ".so", ".pth"))
    if event == "open" and not code or event.startswith(("socket.", "subprocess.")):
        opened.append([event, name])
sys.addaudithook(watch)
before = set(sys.modules)
from promptools import parse, StreamParser
print(json.dumps({"modules": sorted(set(sys.modules) - before), "opened": opened}))
"""
TIMED = "import time; started = time.process_time(); {}; print(time.process_time() - started)"


def run(code: str) -> str:
    # bytecode is kept, as everywhere but on machines that are told otherwise
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    return done.stdout


def probe() -> dict:
    return json.loads(run(PROBE))


def test_it_loads_no_heavy_library():
    assert HEAVY & {name.partition(".")[0] for name in probe()["modules"]} == set()


def test_it_opens_nothing():
    assert probe()["opened"] == []


def test_it_loads_few_modules():
    assert len(probe()["modules"]) <= MODULES


def test_the_command_loads_next_to_nothing_before_it_handles_an_interrupt():
    path = str(Path(promptools.__file__).resolve().parents[1])
    code = f"import sys; sys.path.insert(0, {path!r}); import promptools.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "promptools.__main__" in loaded
    assert loaded & {"argparse", "contextlib", "re", "typing", "promptools.cli"} == set()


def loaded_by(*words: str) -> set[str]:
    """The modules of promptools, and the large ones, that a command loads."""
    code = f"import sys, promptools.__main__\nsys.argv[1:] = {words!r}\ntry: promptools.__main__.main()\n"
    code += "except SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout
    return {name for name in done.stderr.split() if name.partition(".")[0] in {"promptools", *HEAVY}}


EVERY_COMMAND = {
    "promptools",
    "promptools.__main__",
    "promptools.cli",
    "promptools.cli.command_log",
    "promptools.cli.command_parser",
    "promptools.cli.terminal_output",
    "promptools.errors",
    "promptools.log",
    "promptools.patterns",
}


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_the_program_loads_no_command_to_describe_itself(word):
    assert loaded_by(word) == EVERY_COMMAND


def test_a_command_loads_no_other():
    own = {"promptools.cli.version_command", "promptools.cli.shared_arguments"}
    assert {name for name in loaded_by("version") if name.startswith("promptools.cli")} == own | {
        name for name in EVERY_COMMAND if name.startswith("promptools.cli")
    }


PATTERNS = """
import re, sys
compiled, made = [], []
compile = re.compile
def count(pattern, flags=0):
    caller = sys._getframe(1).f_globals["__name__"]
    if caller.startswith("promptools."):
        compiled.append(pattern)
    return compile(pattern, flags)
re.compile = count
import promptools.patterns
class Counted(promptools.patterns._LazyPattern):
    def __init__(self, pattern, flags):
        made.append(pattern)
        super().__init__(pattern, flags)
promptools.patterns._LazyPattern = Counted
import promptools.client
at_import = len(compiled)
tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
promptools.render([{"role": "user", "content": "Hi"}], tools)
reply = promptools.parse('```json\\n{"tool": "get_weather", "arguments": {"city": "Oslo"}}\\n```', tools)
assert [call.name for call in reply.calls] == ["get_weather"]
print(at_import, len(compiled), len(made))
"""
FIRST_REPLY = 80
"""Patterns that may be compiled until a reply has been read: what any can begin with, and those of its own dialect."""


def test_patterns_are_compiled_on_first_use():
    at_import, compiled, made = map(int, run(PATTERNS).split())
    assert at_import == 0
    assert compiled <= FIRST_REPLY
    assert made > 5 * compiled, "most of the patterns that there are wait until a reply needs them"


@pytest.mark.clock
def test_it_takes_little_time():
    run(PROBE)  # compiles what is not compiled yet
    ours = yardstick = float("inf")
    for _ in range(10):
        ours = min(ours, float(run(TIMED.format("from promptools import parse, StreamParser"))))
        yardstick = min(yardstick, float(run(TIMED.format("import asyncio"))))
        if ours < LIMIT:
            return
    allowed = LIMIT * max(1.0, yardstick / ASYNCIO)
    assert ours < allowed, "seconds of processor time"
