"""Write the first part of docs/reference/matrix.md, and its head into the README, from `promptools verify --json`.

    python tools/matrix.py FILE...                      results of servers of yours
    python tools/matrix.py --models NAME... --minutes N  verify models of tools/recipes/models.py first
        --servers llamacpp ollama                        on these servers (llamacpp)
    python tools/matrix.py                              only write the page

The results, without their single answers, are merged into benchmarks/models/verified.jsonl, from which the part is
generated: a later result of the same server and model replaces the earlier one. Results of others' benchmarks are kept
by hand, with their commands, in benchmarks/models/outside.jsonl.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

from environments import path_of
from rig import ollama

from benchmarks.models.markdown import table, write_part
from promptools.harness.verification.scenarios import SCENARIOS
from promptools.harness.verification.summary import MIN_CASES
from promptools.lab import llamacpp_server
from promptools.lab.server_process import Server

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "matrix.md"
README = ROOT / "README.md"
KEPT = ROOT / "benchmarks" / "models" / "verified.jsonl"
OUTSIDE = ROOT / "benchmarks" / "models" / "outside.jsonl"
TARGET = "matrix"
HEAD = """
## By `promptools verify`

[`promptools verify`](../tasks/verify-a-server.md) asks a server the same cases directly and through promptools. Shares
of right cases have 95 % intervals; the conclusion has the difference in percentage points. {settings}

Your server and model are ten minutes away: `promptools verify URL`.
"""
COLUMNS = ("server", "model", "cases", "server alone", "through promptools", "conclusion", "date", "promptools version")
README_COLUMNS = COLUMNS[:5]
README_ROWS = 4
SCENARIOS_HEAD = f"""
### By scenario

How many cases of each [scenario](../tasks/verify-a-server.md) were right, server alone → through promptools. Where a
case was right in part, the share follows in percent. A result in **bold** is a difference beyond chance, which takes at
least {MIN_CASES} cases; `-` means that no case was asked.
"""
OUTSIDE_HEAD = """
## By benchmarks of others

Our scenarios are our own exam. These are the points that benchmarks of others gave, as black boxes, to the bare server
and to the proxy in front of it, with the same settings. [BFCL](../tasks/run-a-benchmark.md#a-small-model) has its own
page.
"""
OUTSIDE_COLUMNS = ("benchmark", "server", "model", "date", "server alone", "through promptools", "better")


def main(*words: str) -> None:
    """Merge the results of files and models, and write the part of the page and the README's table."""
    parser = argparse.ArgumentParser(description="Write the first part of docs/reference/matrix.md.")
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
    write_part(PAGE, TARGET, part(kept()))
    write_part(README, TARGET, readme_part(kept()))


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


def part(runs: list[dict[str, Any]]) -> str:
    """Return the part of the page."""
    lines = [
        HEAD.format(settings=_settings(runs)),
        *table(COLUMNS, [_row(run) for run in runs]),
        *_scenarios(runs),
        *_outside(read_lines(OUTSIDE)),
    ]
    return "\n".join(lines) + "\n\n"


def readme_part(runs: list[dict[str, Any]]) -> str:
    """Return the first rows of the table, for the README."""
    rows = [_row(run)[: len(README_COLUMNS)] for run in runs[:README_ROWS]]
    return "\n".join(table(README_COLUMNS, rows)) + "\n"


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    overall = run["overall"]
    rates = (overall[side]["rate"] for side in ("alone", "through"))
    shares = (f"{100 * rate['estimate']:.0f} % [{100 * rate['low']:.0f}, {100 * rate['high']:.0f}]" for rate in rates)
    about = (run["conclusion"], run["date"][:10], run["promptools"])
    return (run["server"], run["model"], str(overall["cases"]), *shares, *about)


def _settings(runs: list[dict[str, Any]]) -> str:
    """Return a sentence for each setting of requests, with the servers and models that were asked with it."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        words = ", ".join(f"{name} {value}" for name, value in run["settings"].items())
        groups.setdefault(words, []).append(_title(run))
    if len(groups) == 1:
        return f"Settings: {next(iter(groups))}."
    return " ".join(f"Settings of {', '.join(titles)}: {words}." for words, titles in groups.items())


def _title(run: dict[str, Any]) -> str:
    return f"{run['model']} on {run['server']}"


def _scenarios(runs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield one table with the scenarios of all results."""
    yield SCENARIOS_HEAD
    of_runs = [{scenario["name"]: scenario for scenario in run["scenarios"]} for run in runs]
    names = [name for name in dict.fromkeys([*SCENARIOS, *chain(*of_runs)]) if any(name in each for each in of_runs)]
    rows = [(name, *(_cell(each.get(name)) for each in of_runs)) for name in names]
    yield from table(("scenario", *map(_title, runs)), rows)


def _cell(scenario: dict[str, Any] | None) -> str:
    if scenario is None:
        return "-"
    cell = " → ".join(_right(scenario[side], scenario["cases"]) for side in ("alone", "through"))
    return f"**{cell}**" if scenario["verdict"] in {"promptools", "server alone"} else cell


def _right(side: dict[str, Any], cases: int) -> str:
    """Return how many cases were right, and their mean share where that says more."""
    share, right = side["rate"]["estimate"], side["right"]
    return f"{right}/{cases}" + ("" if round(share * cases, 6) == right else f" ({100 * share:.0f} %)")


def _outside(runs: list[dict[str, Any]]) -> Iterator[str]:
    yield OUTSIDE_HEAD
    yield from table(OUTSIDE_COLUMNS, [_outside_row(run) for run in runs])
    yield ""
    yield from (f"- {run['benchmark']} on {run['model']}: {run['note']}" for run in runs)
    for command in dict.fromkeys(_without_model(run) for run in runs):
        yield f"\n```sh\n{command}\n```"


def _without_model(run: dict[str, Any]) -> str:
    """Return the command, which is often the same for all models."""
    return re.sub(rf"(?<!\S){re.escape(run['model'])}(?!\S)", "MODEL", run["command"])


def _outside_row(run: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row. Points have no interval, so the better side is just the side with more points."""
    alone, through = (run[side]["points"] for side in ("alone", "through"))
    better = "same" if alone == through else "promptools" if through > alone else "server alone"
    points = (f"{each} of {run['most']}" for each in (alone, through))
    return (f"{run['benchmark']} {run['version']}", run["server"], run["model"], run["date"], *points, better)


if __name__ == "__main__":
    main(*sys.argv[1:])
