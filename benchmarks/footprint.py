"""Import time, and the peak memory of parsing."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.table import Row, Table, Target

IMPORT = Target("at most", 2, "<= 2x asyncio (60 ms where it takes 30)")

_IMPORT = """
import time
begin = time.process_time()
{statement}
print(time.process_time() - begin)
"""

_MEMORY = """
import tracemalloc
from benchmarks import samples
from promptools import StreamParser, parse
text = samples.{text}
parse(samples.weather(1), samples.TOOLS)
tracemalloc.start()
{run}
print(tracemalloc.get_traced_memory()[1])
"""

_WHOLE = "reply = parse(text, samples.TOOLS)"
_PIECES = """parser = StreamParser(samples.TOOLS)
for at in range(0, len(text), 4):
    parser.feed(text[at : at + 4])
parser.close()"""


def imports() -> Table:
    """Measure the processor time of an import, without the start of Python, best of 5 processes."""
    statements = {
        "from promptools import parse, StreamParser": "from promptools import parse, StreamParser",
        "asyncio": "import asyncio",
        "openai": "import openai",
        "from promptools.client import OpenAI": "from promptools.client import OpenAI",
        "json_repair": "import json_repair",
        "baml_py": "import baml_py",
        "jsonschema": "import jsonschema",
    }
    times = dict.fromkeys(statements, float("inf"))
    for _ in range(5):
        for case, statement in statements.items():
            times[case] = min(times[case], float(_child(_IMPORT.format(statement=statement))) * 1000)
    rows = []
    for case, milliseconds in times.items():
        ratio = milliseconds / times["asyncio"]
        target = IMPORT if case.startswith("from promptools import") else None
        rows.append(
            Row(
                case,
                {"processor time": f"{milliseconds:.1f} ms", "ratio": f"{ratio:.2f}x"},
                ratio,
                target,
                {"ms": milliseconds},
            )
        )
    return Table("imports", "Import time", rows)


def memory() -> Table:
    """Measure the peak memory while one reply of 1 MB is parsed, without the memory of the text itself."""
    rows = []
    text = 'fenced(samples.call("write_file", {"path": "a", "content": samples.code(900_000)}))'
    cases = (
        ("a call of 1 MB, whole", text, _WHOLE),
        ("a call of 1 MB, in 4-character pieces", text, _PIECES),
        ("1 MB of words, whole", "prose(1_000_000)", _WHOLE),
        ("1 MB of words, in 4-character pieces", "prose(1_000_000)", _PIECES),
    )
    for case, expression, run in cases:
        peak = float(_child(_MEMORY.format(text=expression, run=run))) / 1e6
        rows.append(Row(case, {"peak": f"{peak:.1f} MB"}, measured={"MB": peak}))
    return Table("memory", "Peak memory that a reply of 1 MB takes over its text (tracemalloc)", rows)


def _child(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout
