"""What a process pays before the first reply: import time, and the memory that reading takes at its peak."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.table import Row, Table, Target

IMPORT = Target("at most", 60, "<= 60 ms")

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
    """Processor time of an import beyond Python's own start, best of 5 processes."""
    rows = []
    for case, statement, target in (
        ("from promptools import parse, StreamParser", "from promptools import parse, StreamParser", IMPORT),
        ("openai alone", "import openai", None),
        ("from promptools.client import OpenAI", "from promptools.client import OpenAI", None),
        ("json_repair", "import json_repair", None),
        ("baml_py", "import baml_py", None),
        ("jsonschema", "import jsonschema", None),
    ):
        took = min(float(_child(_IMPORT.format(statement=statement))) for _ in range(5)) * 1000
        rows.append(Row(case, {"processor time": f"{took:.1f} ms"}, took, target, {"ms": took}))
    return Table("imports", "Import time", rows)


def memory() -> Table:
    """Peak memory while one reply of 1 MB is read, over the text itself."""
    rows = []
    text = 'fenced(samples.call("write_file", {"path": "a", "content": samples.code(900_000)}))'
    cases = (
        ("a call of 1 MB, whole", text, _WHOLE),
        ("a call of 1 MB, in 4-character pieces", text, _PIECES),
        ("1 MB of words, whole", "prose(1_000_000)", _WHOLE),
        ("1 MB of words, in 4-character pieces", "prose(1_000_000)", _PIECES),
    )
    for case, made, run in cases:
        peak = float(_child(_MEMORY.format(text=made, run=run))) / 1e6
        rows.append(Row(case, {"peak": f"{peak:.1f} MB"}, measured={"MB": peak}))
    return Table("memory", "Peak memory that a reply of 1 MB takes over its text (tracemalloc)", rows)


def _child(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout
