"""What `from promptools import parse, StreamParser` costs: little time, no I/O, no heavy library."""

import json
import subprocess
import sys

HEAVY = {"httpx", "httpx2", "jsonschema", "ollama", "openai", "pydantic", "rich", "tenacity", "xllamacpp"}
LIMIT = 0.060

PROBE = """
import json, sys, time
opened = []
def watch(event, arguments):
    name = str(arguments[0]) if arguments else ""
    code = name.endswith((".py", ".pyc", ".so", ".pth"))
    if event == "open" and not code or event.startswith(("socket.", "subprocess.")):
        opened.append([event, name])
sys.addaudithook(watch)
before = set(sys.modules)
started = time.process_time()  # our own time: the machine has other things to do
from promptools import parse, StreamParser
seconds = time.process_time() - started
print(json.dumps({"seconds": seconds, "modules": sorted(set(sys.modules) - before), "opened": opened}))
"""


def probe() -> dict:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_it_loads_no_heavy_library():
    assert HEAVY & {name.partition(".")[0] for name in probe()["modules"]} == set()


def test_it_opens_nothing():
    assert probe()["opened"] == []


def test_it_takes_little_time():
    best = float("inf")
    for _ in range(15):
        best = min(best, probe()["seconds"])
        if best < LIMIT:
            break
    assert best < LIMIT
