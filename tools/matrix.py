"""Write docs/reference/matrix.md, and its head into the README, from results of `promptools verify --json`.

    python tools/matrix.py FILE...                      results of servers of yours
    python tools/matrix.py --models NAME... --minutes N  verify models of tools/recipes/models.py first
        --servers llamacpp ollama                        on these servers (llamacpp)
    python tools/matrix.py                              only write the page

The results, without their single answers, are merged into benchmarks/models/verified.jsonl, from which the page is
generated: a later result of the same server and model replaces the earlier one. Results of others' benchmarks are kept
by hand, with their commands, in benchmarks/models/outside.jsonl.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from environments import path_of
from rig import ollama

from promptools.lab import llamacpp_server
from promptools.lab.server_process import Server

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "matrix.md"
README = ROOT / "README.md"
KEPT = ROOT / "benchmarks" / "models" / "verified.jsonl"
OUTSIDE = ROOT / "benchmarks" / "models" / "outside.jsonl"
HEAD = """# Servers and models, alone and through promptools

<!-- made by `make matrix` from benchmarks/models/verified.jsonl -->

What [`promptools verify`](../tasks/verify-a-server.md) found on the servers and weights that run here: the share of
cases that were right, straight at the server and through promptools, with 95 % intervals. The last column is the
difference in percentage points. Your server and model are ten minutes away: `promptools verify URL`.
"""
COLUMNS = ("server", "model", "date", "cases", "server alone", "through promptools", "difference")
README_COLUMNS = ("server", "model", "cases", "server alone", "through promptools")
README_ROWS = 4
OUTSIDE_HEAD = """
## By benchmarks of others

Our scenarios are our own exam. These are the points that benchmarks of others gave, as black boxes, to the bare server
and to the proxy in front of it, with the same settings. [BFCL](../tasks/run-a-benchmark.md#a-small-model) has its own
page.
"""
OUTSIDE_COLUMNS = ("benchmark", "server", "model", "date", "server alone", "through promptools", "better")
BEGIN, END = "<!-- made by `make matrix` -->\n", "<!-- end of what `make matrix` made -->\n"
SCENARIO_COLUMNS = ("scenario", "cases", "server alone", "through promptools", "difference", "better")


def main(*words: str) -> None:
    """Merge the results of files and models, and write the page and the README's table."""
    parser = argparse.ArgumentParser(description="Write docs/reference/matrix.md.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="results of promptools verify --json")
    parser.add_argument("--models", nargs="*", default=[], metavar="NAME", help="models to verify")
    parser.add_argument("--servers", nargs="*", default=["llamacpp"], choices=SERVERS, help="the servers of the models")
    parser.add_argument("--minutes", default="60", metavar="N", help="how long each model may take (60)")
    arguments = parser.parse_args(words)
    for name in arguments.files:
        keep(Path(name).read_text(encoding="utf-8"))
    for server in arguments.servers:
        for model in arguments.models:
            keep(verify(server, model, arguments.minutes))
    PAGE.write_text(page(kept()), encoding="utf-8")
    README.write_text(with_head(README.read_text(encoding="utf-8"), kept()), encoding="utf-8")


def keep(result: str) -> None:
    """Keep a result, without its single answers, in place of an earlier one of the same server and model."""
    run = json.loads(result)
    del run["rows"]
    runs = {key(each): each for each in (*kept(), run)}
    lines = [json.dumps(runs[each], ensure_ascii=False) + "\n" for each in sorted(runs)]
    KEPT.write_text("".join(lines), encoding="utf-8")


def on_llamacpp(model: str) -> Server:
    """Start llama.cpp on a model of tools/recipes/models.py."""
    return llamacpp_server.serve_file(path_of(f"model-{model}"), name=model)


def on_ollama(model: str) -> Server:
    """Start Ollama on a model of tools/recipes/models.py."""
    return ollama.serve_file(
        path_of(f"model-{model}"), name=model, context=llamacpp_server.FILE_CONTEXT, program=path_of("ollama")
    )


SERVERS: Final = {"llamacpp": on_llamacpp, "ollama": on_ollama}


def verify(server_name: str, model: str, minutes: str) -> str:
    """Verify a model on a server that is started for it, at temperature 0; return the result."""
    with SERVERS[server_name](model) as server:
        command = [
            sys.executable,
            "-m",
            "promptools",
            "verify",
            server.base_url,
            "--model",
            model,
            "--temperature",
            "0",
            "--json",
            "--yes",
        ]
        done = subprocess.run([*command, "--minutes", minutes], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def kept() -> list[dict[str, Any]]:
    """Return the results that are kept."""
    return read_lines(KEPT)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON Lines; none if there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def key(run: dict[str, Any]) -> tuple[str, str]:
    """Return what identifies a result: the kind of server, and the model."""
    return run["server"].split()[0], run["model"]


def page(runs: list[dict[str, Any]]) -> str:
    """Return the page."""
    lines = [HEAD, *_table(COLUMNS, map(_row, runs)), *_outside(read_lines(OUTSIDE))]
    return "\n".join([*lines, *(line for run in runs for line in _section(run))]) + "\n"


def with_head(readme: str, runs: list[dict[str, Any]]) -> str:
    """Return the README with the first rows of the table between its two marks."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{README.name} has no place for the table: the lines {BEGIN.strip()} and {END.strip()}")
    rows = ([*cells[:2], *cells[3:6]] for cells in (list(_row(run)) for run in runs[:README_ROWS]))
    return "".join((before, begin, "\n".join(_table(README_COLUMNS, rows)), "\n", end, after))


def _row(run: dict[str, Any]) -> Iterator[str]:
    overall = run["overall"]
    yield from (run["server"], run["model"], run["date"][:10], str(overall["cases"]), *_figures(overall))


def _section(run: dict[str, Any]) -> Iterator[str]:
    settings = ", ".join(f"{name} {value}" for name, value in run["settings"].items())
    yield from ("", f"## {run['model']} on {run['server']}", "")
    yield from (f"{run['date'][:10]}, promptools {run['promptools']}, {settings}. {run['conclusion']}", "")
    yield from _table(SCENARIO_COLUMNS, map(_scenario_row, run["scenarios"]))


def _scenario_row(scenario: dict[str, Any]) -> Iterator[str]:
    yield from (scenario["name"], str(scenario["cases"]), *_figures(scenario), scenario["verdict"])


def _outside(runs: list[dict[str, Any]]) -> Iterator[str]:
    yield OUTSIDE_HEAD
    yield from _table(OUTSIDE_COLUMNS, map(_outside_row, runs))
    for run in runs:
        yield from ("", f"{run['benchmark']}: {run['note']}", "", f"```sh\n{run['command']}\n```")


def _outside_row(run: dict[str, Any]) -> Iterator[str]:
    """Yield the cells of a row. Points have no interval, so the better side is just the side with more points."""
    alone, through = (run[side]["points"] for side in ("alone", "through"))
    yield from (f"{run['benchmark']} {run['version']}", run["server"], run["model"], run["date"])
    yield from (f"{points} of {run['most']}" for points in (alone, through))
    yield "same" if alone == through else "promptools" if through > alone else "server alone"


def _figures(summary: dict[str, Any]) -> Iterator[str]:
    for side in ("alone", "through"):
        rate = summary[side]["rate"]
        yield f"{100 * rate['estimate']:.0f} % [{100 * rate['low']:.0f}, {100 * rate['high']:.0f}]"
    difference = summary["difference"]
    low, high = (f"{100 * difference[end]:+.0f}" for end in ("low", "high"))
    yield f"{100 * difference['estimate']:+.0f} [{low}, {high}]"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = list(columns)
    for cells in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(*sys.argv[1:])
