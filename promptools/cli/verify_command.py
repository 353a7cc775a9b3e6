"""The command `promptools verify`: run the same scenarios on the server alone and through promptools."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promptools
from promptools.cli.benchmark_run import json_object, server_of
from promptools.cli.command_client import choose_model, connect
from promptools.cli.detect_command import detect_server
from promptools.cli.proxy_addresses import refuse_proxy
from promptools.cli.shared_arguments import add_endpoint, add_json, at_least, seconds
from promptools.cli.terminal_output import print_json, print_progress, print_styled, print_table, show_progress
from promptools.errors import UpstreamError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import openai

    from promptools.harness.verification.asking import Asker
    from promptools.harness.verification.comparison import Change
    from promptools.harness.verification.measuring import Row, Side
    from promptools.harness.verification.planning import Plan
    from promptools.harness.verification.scenarios import Case
    from promptools.harness.verification.summary import Summary

MAX_TOKENS = 512
"""Default for the maximum number of tokens in an answer: enough for a call after some reasoning."""
_TRIAL_SHARE = 0.1
"""Maximum timeout of a request in the trial that precedes the run, as a fraction of the run's time (`--minutes`).

If a request times out, the client sends it again, up to three times in total, so it may take three times as long.
"""
_SHOWN_LINES = 6
_YES = {"", "y", "yes"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_endpoint(parser)
    parser.add_argument("--minutes", type=seconds, metavar="N", default=10.0, help="how long it may take (10)")
    parser.add_argument("--scenarios", metavar="LIST", help="the scenarios to run, separated by commas (default: all)")
    parser.add_argument(
        "--repeats", type=at_least(1, "repeats"), metavar="N", default=1, help="how often to run each case (1)"
    )
    parser.add_argument("--workers", type=at_least(1, "workers"), metavar="N", default=1, help="cases at once (1)")
    parser.add_argument("--temperature", type=float, metavar="T", help="temperature (default: the server's)")
    parser.add_argument(
        "--max-tokens", type=at_least(16, "tokens"), metavar="N", default=MAX_TOKENS, help="limit of each answer (512)"
    )
    parser.add_argument(
        "--request", type=json_object, default={}, metavar="JSON", help="additional keys for each request"
    )
    parser.add_argument("--timeout", type=seconds, metavar="S", default=120.0, help="seconds for each answer (120)")
    parser.add_argument("--output", metavar="FILE", help="log of the run, JSON Lines; an interrupted run is resumed")
    parser.add_argument("--html", metavar="FILE", help="write a page in HTML")
    parser.add_argument("--yes", action="store_true", help="do not ask before the run")
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="compare two results of --json: exit status 1 if B has lost"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Verify a server, or with `--compare` compare two results.

    Return 1 if the second result is significantly worse in any scenario or overall, with or without promptools.
    """
    from promptools.harness.evaluation.intervals import require_numpy

    require_numpy()
    return _compare(arguments) if arguments.compare else _verify(arguments)


def _verify(arguments: argparse.Namespace) -> int:
    from promptools.harness.verification.measuring import VerificationLog, measure
    from promptools.harness.verification.scenarios import cases, suite_digest
    from promptools.harness.verification.summary import summarize

    chosen = cases(_scenarios(arguments.scenarios))
    with connect(arguments) as client:
        refuse_proxy(str(client.base_url), client.api_key)
        model = choose_model(arguments, client)
        about = _about(arguments, client, model, suite_digest())
        askers = _askers(arguments, client, model)
        settings = {key: about[key] for key in ("base_url", "model", "settings", "suite")}
        log_path = Path(arguments.output) if arguments.output else None
        with VerificationLog(log_path, settings) as log:
            repeats = range(arguments.repeats)
            known = {case.id for case in chosen if all((case.id, repeat) in log.rows for repeat in repeats)}
            if len(known) < len(chosen):
                _require_consent(arguments)
            planned = _plan(arguments, chosen, askers, known)
            _ask_to_go_on(arguments, planned, about)
            with show_progress(model) as show:
                if planned.requests:
                    show("asking", len(log.rows), arguments.repeats * len(planned.cases))
                rows = measure(
                    planned.cases,
                    askers,
                    log,
                    repeats=arguments.repeats,
                    workers=arguments.workers,
                    timeout=arguments.timeout,
                    seconds=60 * arguments.minutes,
                    progress=_describe(show),
                )
    if not rows:
        raise UpstreamError(
            f"no case was finished in {_in_minutes(arguments.minutes)}: give more --minutes (a model on a CPU needs ten"
            " or more), or fewer --scenarios"
        )
    finished = [*Counter(row.case for row in rows).values()].count(arguments.repeats)
    if finished < len(planned.cases):
        print_progress(f"the time was over after {finished} of {len(planned.cases)} planned cases: give more --minutes")
    _show(arguments, summarize(rows), rows, about)
    return 0


def _scenarios(text: str | None) -> list[str]:
    from promptools.harness.verification.scenarios import SCENARIOS

    if text is None:
        return list(SCENARIOS)
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in SCENARIOS]:
        raise UsageError(f"--scenarios: {unknown[0]!r} is not one of {', '.join(SCENARIOS)}")
    return names


def _about(arguments: argparse.Namespace, client: openai.OpenAI, model: str, suite: str) -> dict[str, Any]:
    """Return the facts about the run that are part of its result."""
    url = server_of(client).rstrip("/")
    server = "unknown"
    if arguments.detect:
        target, seen = detect_server(str(client.base_url).rstrip("/"), model, f"Bearer {client.api_key}")
        server = f"{target.profile.kind} {seen.version or ''}".strip()
    return {
        "base_url": url,
        "model": model,
        "server": server,
        "promptools": promptools.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": _request_keys(arguments),
        "suite": suite,
    }


def _request_keys(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keys that the user adds to each request."""
    temperature = {} if arguments.temperature is None else {"temperature": arguments.temperature}
    return {**temperature, "max_tokens": arguments.max_tokens, **arguments.request}


def _askers(arguments: argparse.Namespace, client: openai.OpenAI, model: str) -> dict[Side, Asker]:
    """Return an `Asker` for each side.

    The side `alone` uses the official client, and the side `through` uses promptools' client.
    """
    import openai

    from promptools.harness.verification.asking import Asker

    alone = openai.OpenAI(base_url=str(client.base_url), api_key=client.api_key)
    keys = _request_keys(arguments)
    return {
        "alone": Asker(alone, model, keys, traced=False),
        "through": Asker(client, model, keys, traced=True),
    }


def _plan(arguments: argparse.Namespace, chosen: Sequence[Case], askers: dict[Side, Asker], known: set[str]) -> Plan:
    """Plan the run: measure how long one case takes, and choose the cases that fit into the run's time.

    The measured case is the first one without a result. It is run on the server alone and through promptools.
    """
    from promptools.harness.verification.measuring import SIDES, run_case
    from promptools.harness.verification.planning import Speed, plan, speed_of

    speed = Speed(0.0, 0.0, 0.0)
    trial = next((case for case in chosen if case.id not in known), None)
    if trial is not None:
        print_progress(f"trying the server with one case: {trial.id}")
        patience = min(arguments.timeout, 60 * arguments.minutes * _TRIAL_SHARE)
        first = askers["alone"].ask(trial.asks()[0].body, patience).answer
        if first.status is None:
            raise UpstreamError(f"the server does not answer in {patience:g} seconds: {first.error}")
        results = [run_case(trial, askers[side], lambda: patience) for side in SIDES]
        speed = speed_of(trial, results)
    return plan(
        chosen, speed, known, repeats=arguments.repeats, workers=arguments.workers, seconds=60 * arguments.minutes
    )


def _require_consent(arguments: argparse.Namespace) -> None:
    """Raise `UsageError` if the user has not agreed to the run with `--yes`, and stdin is not a terminal."""
    if not (arguments.yes or sys.stdin.isatty()):
        raise UsageError("the run would first ask whether to continue: add --yes")


def _in_minutes(number: float) -> str:
    return f"{number:g} minute{'' if number == 1 else 's'}"


def _ask_to_go_on(arguments: argparse.Namespace, planned: Plan, about: dict[str, Any]) -> None:
    """Announce the cost of the run, and ask the user whether to continue; raise `UsageError` if the user declines.

    The user is not asked if --yes is given or all cases are in the log.
    """
    if not planned.requests:
        print_progress("all cases are in the log")
        return
    print_progress(
        f"{about['model']} at {about['base_url']} will be asked {planned.requests} times, half of them through"
        f" promptools: some {planned.prompt_tokens:,} tokens of prompts and {planned.completion_tokens:,} generated,"
        f" in about {planned.seconds / 60:.1f} minutes"
    )
    if planned.left_out:
        total = planned.left_out + len(planned.cases)
        print_progress(f"{len(planned.cases)} of {total} cases fit into {_in_minutes(arguments.minutes)}")
    if arguments.yes:
        return
    print("go on? [Y/n] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in _YES:
        raise UsageError("not run")


def _describe(show: Callable[[str, int, int], None]) -> Callable[[Row, int, int], None]:
    """Return a function that shows a new row, with the number of correct cases so far on each side."""
    right = {"alone": 0, "through": 0}

    def describe(row: Row, done: int, total: int) -> None:
        right["alone"] += row.alone.share == 1
        right["through"] += row.through.share == 1
        show(f"right: server alone {right['alone']}, promptools {right['through']}; {row.scenario}", done, total)

    return describe


def _show(arguments: argparse.Namespace, summary: Summary, rows: Sequence[Row], about: dict[str, Any]) -> None:
    from promptools.harness.verification.page import COLUMNS, render_html, summary_rows
    from promptools.harness.verification.summary import to_dict

    if arguments.html:
        _write(arguments.html, render_html(summary, about))
    if arguments.json:
        print_json(to_dict(summary, rows, about))
        return
    print_table(f"{about['model']} at {about['base_url']}", COLUMNS, summary_rows(summary))
    pieces: list[tuple[str, str]] = []
    for row in summary.overall.failures:
        pieces += [(f"{row.case}\n", "bold")]
        for name, result in (("server alone", row.alone), ("through promptools", row.through)):
            lines = result.reply.splitlines()[:_SHOWN_LINES]
            pieces += [(f"  {name}: {result.failure or 'right'}\n", ""), *((f"    {line}\n", "dim") for line in lines)]
    print_styled([*pieces, (f"\n{summary.conclusion}", "bold")])


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {name!r}: {error.strerror}") from error


# The comparison of two results.


def _compare(arguments: argparse.Namespace) -> int:
    from promptools.harness.verification.comparison import compare, differences, read_run

    before, after = (read_run(Path(name)) for name in arguments.compare)
    changes = compare(before, after)
    losses = [change for change in changes if change.outcome == "loss"]
    if arguments.json:
        print_json({"changes": [{**asdict(change)} for change in changes], "lost": bool(losses)})
    else:
        print_table("what the results say of themselves", ("", "before", "after"), differences(before, after))
        columns = ("scenario", "asked", "cases", "before", "after", "difference", "")
        print_table("what changed", columns, [_change_row(change) for change in changes])
        print_styled([(f"{len(losses)} losses beyond chance" if losses else "no loss beyond chance", "bold")])
    return int(bool(losses))


_ASKED = {"alone": "server alone", "through": "through promptools"}


def _change_row(change: Change) -> tuple[str, ...]:
    from promptools.harness.verification.summary import describe_points

    rates = (f"{100 * rate:.1f} %" for rate in (change.before, change.after))
    return (
        change.scenario,
        _ASKED[change.side],
        str(change.cases),
        *rates,
        describe_points(change.difference),
        change.outcome,
    )
