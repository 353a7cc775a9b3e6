"""Measure the start of a command, and of a client until its first request is answered, in separate processes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable

from benchmarks.stub import running
from benchmarks.table import Row, Table, Target
from benchmarks.timing import seconds

ROUNDS = 5
VERSION = Target("at most", 0.15, "<= 150 ms")
FIRST = Target("at most", 0.15, "<= 150 ms added")

_CLIENT = """
import json, sys, time
began = time.process_time()
{made}
ready = time.process_time()
from benchmarks import samples
asked = time.process_time()
messages = [{{"role": "user", "content": "What is the weather in Longyearbyen?"}}]
reply = client.chat.completions.create(model="stub", messages=messages, tools=samples.OPENAI)
answered = time.process_time()
assert reply.choices[0].message.tool_calls[0].function.name == "get_weather"
print(json.dumps([ready - began, answered - asked]))
"""
_OPTIONS = "base_url=sys.argv[1], api_key='none', max_retries=0"
_BARE = f"import openai; client = openai.OpenAI({_OPTIONS})"
_OURS = f"import promptools; client = promptools.OpenAI({_OPTIONS}, mode={{mode!r}})"
PHASES = ("import and client", "first request")


def start() -> tuple[Table, Table]:
    """Measure processor time: the least of several processes of each kind; the kinds take turns."""
    return _commands(), _clients()


def _commands() -> Table:
    """Measure whole processes, Python's own start included."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "promptools --version": ["-m", "promptools", "--version"],
        "promptools --help": ["-m", "promptools", "--help"],
    }
    times = _least({case: lambda words=words: [_spent(words)] for case, words in commands.items()})
    python = times["python -c pass"][0]
    rows = [
        Row(
            case,
            {"processor time": seconds(took), "ratio": f"{took / python:.1f}x"},
            took,
            VERSION if "promptools" in case else None,
            {"s": took},
        )
        for case, (took,) in times.items()
    ]
    return Table("start_commands", "Start of a command", rows)


def _clients() -> Table:
    """Measure the import and creation of a client, and its first request, and compare both with the bare client."""
    made = {"bare": _BARE, **{mode: _OURS.format(mode=mode) for mode in ("native", "prompt")}}
    with running() as url:
        times = _least({who: lambda code=code: _phases(_CLIENT.format(made=code), url) for who, code in made.items()})
    rows: list[Row] = []
    for number, phase in enumerate(PHASES):
        bare = times["bare"][number]
        for who, phases in times.items():
            took = phases[number]
            added = None if who == "bare" else took - bare
            shown = {"took": seconds(took), "added": "" if added is None else seconds(added)}
            target = FIRST if phase == "first request" else None
            rows.append(Row(f"{phase}, {who}", shown, added, target if added is not None else None, {"s": took}))
    return Table("start_clients", "Start of a client", rows)


def _least(jobs: dict[str, Callable[[], list[float]]]) -> dict[str, list[float]]:
    least: dict[str, list[float]] = {}
    for job in jobs.values():
        job()  # compiles what is not compiled yet
    for _ in range(ROUNDS):
        for case, job in jobs.items():
            took = job()
            least[case] = [*map(min, least.get(case, took), took)]
    return least


def _spent(words: list[str]) -> float:
    """Return the processor time of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _phases(code: str, url: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", code, url], check=True, capture_output=True, text=True)
    return [float(took) for took in json.loads(done.stdout)]
