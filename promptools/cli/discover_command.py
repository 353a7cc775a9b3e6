"""The command `promptools discover`: find out which tools a model was trained on."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from promptools.cli.benchmark_run import json_object
from promptools.cli.command_client import choose_model, connect
from promptools.cli.shared_arguments import add_endpoint, add_json, at_least
from promptools.cli.terminal_output import print_json, show_progress
from promptools.errors import UsageError, without_credentials
from promptools.types import ModeName

if TYPE_CHECKING:
    import openai

    from promptools.harness.discovery.findings import Findings
    from promptools.harness.discovery.pipeline import Plan


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_endpoint(parser)
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="folder of samples and reports; an interrupted run is resumed"
    )
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--intents", metavar="FILE", help="prompts, one per line, or JSON Lines with text and kind")
    asked.add_argument(
        "--from-logs", metavar="DIR", help="ask with agents' reasoning, from their tapes, trajectories or JSON Lines"
    )
    asked.add_argument("--repeats", type=at_least(1, "repeats"), default=4, metavar="N", help="replies per intent (4)")
    asked.add_argument(
        "--questions",
        type=at_least(1, "repeats"),
        default=5,
        metavar="N",
        help="repeats of each question about names, calls and descriptions (5)",
    )
    asked.add_argument(
        "--max-tools", type=at_least(1, "tools"), default=12, metavar="N", help="tools to ask about (12)"
    )
    asked.add_argument("--no-validate", dest="validate", action="store_false", help="skip replies with tools defined")
    asked.add_argument("--mode", choices=get_args(ModeName), help="ask in this mode only")
    asked.add_argument("--request", type=json_object, default={}, metavar="JSON", help="keys to add to each request")
    asked.add_argument("--seed", type=at_least(0, "seeds"), default=0, metavar="N", help="random seed")
    budget = parser.add_argument_group("how much")
    budget.add_argument(
        "--workers", type=at_least(1, "workers"), default=4, metavar="N", help="concurrent requests (4)"
    )
    budget.add_argument("--max-requests", type=at_least(1, "requests"), metavar="N", help="send no more than N")
    budget.add_argument("--max-tokens", type=at_least(1, "tokens"), metavar="N", help="begin no request after N tokens")
    parser.add_argument(
        "--no-plots", dest="plots", action="store_false", help="do not write plots, which need matplotlib"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Request the model's replies that are not in the log yet, and write the reports; return 1 if a request failed."""
    from promptools.harness.discovery.output import require_matplotlib
    from promptools.harness.evaluation.intervals import require_numpy

    require_numpy()
    if arguments.plots:
        require_matplotlib()
    plan = _plan(arguments)
    folder = Path(arguments.output)
    with connect(arguments) as client:
        model = choose_model(arguments, client)
        findings = _discover(arguments, client, model, plan, folder / "samples.jsonl")
    page = write_reports(findings, folder, model, plots=arguments.plots)
    if arguments.json:
        print_json(findings.to_dict())
    else:
        print(page)
    return 1 if findings.failed else 0


def _discover(arguments: argparse.Namespace, client: openai.OpenAI, model: str, plan: Plan, path: Path) -> Findings:
    """Run all stages of the discovery, and return the findings. The model's replies are logged in the file `path`."""
    from promptools.harness.discovery.pipeline import discover
    from promptools.harness.discovery.samples import Budget, SampleLog, Sampler

    settings = {
        "model": model,
        "server": without_credentials(str(client.base_url)),
        "request": arguments.request,
        "seed": arguments.seed,
        "mode": arguments.mode or "",
    }
    with SampleLog(path, settings) as log, show_progress(model) as show:
        sampler = Sampler(
            client,
            model,
            log,
            Budget(arguments.max_requests, arguments.max_tokens),
            arguments.workers,
            arguments.seed,
            arguments.request,
            {"mode": arguments.mode} if arguments.mode else {},
            progress=show,
        )
        asked = {"intents": len(plan.intents), "repeats": plan.repeats, "questions": plan.question_repeats}
        return discover(sampler, plan, {**settings, **asked})


def _plan(arguments: argparse.Namespace) -> Plan:
    from promptools.harness.discovery.pipeline import Plan
    from promptools.harness.discovery.questions import INTENTS, read_intents, read_logs

    intents = read_intents(Path(arguments.intents)) if arguments.intents else []
    intents += read_logs(Path(arguments.from_logs)) if arguments.from_logs else []
    return Plan(
        intents or INTENTS,
        arguments.repeats,
        question_repeats=arguments.questions,
        max_tools=arguments.max_tools,
        validate=arguments.validate,
    )


def write_reports(findings: Findings, folder: Path, model: str, *, plots: bool) -> str:
    """Write the findings, report, definitions, config and plots into a folder; return the Markdown report."""
    from promptools.harness.discovery.output import definitions, draw_plots, marks_toml, render_page

    images = draw_plots(findings, folder) if plots else []
    page = render_page(findings, title=f"Tools of {model}", images=images)
    _write(folder / "findings.json", _dump(findings.to_dict()))
    _write(folder / "discovered-tools.md", page)
    _write(folder / "tools.json", _dump(definitions(findings.tools)))
    _write(folder / "promptools.toml", marks_toml(findings.tools))
    return page


def _dump(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error
