"""Ask real models the questions, and hold conversations with them: `make results-models`.

A model is a name of tools/recipes/models.py without `model-`, or the path of a GGUF file. Rows are added as they come,
so a run continues where the last run ended. A question or a conversation is asked again if its text has changed since,
or with `--again`. In conversations, only new requests reach the model, because its answers are kept in
PROMPTOOLS_CACHE. The page is written at the end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

from benchmarks.models import agent, page
from benchmarks.models.ask import ALONE, AS_IT_COMES, PROMPT, RAW, Row, Way, ask, client_of, prompted
from benchmarks.models.catalogue import MODELS
from benchmarks.models.conversations import report, run
from benchmarks.models.conversations.conversation import COUNTS, Conversation, Part, conversations
from benchmarks.models.conversations.figures import judged
from benchmarks.models.question import Half, Question, questions
from benchmarks.models.rows import CONVERSATIONS, QUESTIONS, transcripts
from promptools.lab.llamacpp_server import serve_file

ROOT = Path(__file__).parents[2]

AGENT = "qwen-1.5b"
"""The model for the tasks of the agent: smaller models do not call a second tool."""


def main(words: Sequence[str] | None = None) -> int:
    """Ask whatever has no result yet, and write the page."""
    asked = _parser().parse_args(words)
    if asked.drop:
        CONVERSATIONS.remove(lambda row: row.words == asked.drop)
    for name in [] if asked.page or asked.drop else asked.models or MODELS:
        path = path_of(name)
        if path is None:
            continue
        model = Path(name).stem if Path(name).suffix == ".gguf" else name
        if asked.only in {None, "questions"}:
            _ask(model, path, asked)
        if asked.only in {None, "conversations"}:
            _hold(model, path, asked)
    if asked.out is None:
        page.write()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(MODELS)}, or a path (default: all)")
    parser.add_argument("--only", choices=["questions", "conversations"], help="leave the other out")
    parser.add_argument("--way", action="append", metavar="WAY", help="only this way, such as 'as it comes'")
    parser.add_argument("--again", action="store_true", help="drop the rows of these models and ways first")
    parser.add_argument("--half", choices=get_args(Half), help="only the questions that chose the words, or the others")
    parser.add_argument(
        "--part", choices=get_args(Part), help="only the conversations that may choose words, or those held back"
    )
    parser.add_argument("--kind", action="append", choices=COUNTS, help="only conversations of this kind")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth of them, for a slow model")
    parser.add_argument("--out", type=Path, metavar="FILE", help="transcripts go there and not to the page, for trials")
    parser.add_argument("--drop", metavar="DIGEST", help="only delete the transcripts of older words")
    parser.add_argument("--slots", type=int, default=1, help="questions asked at once (default: 1)")
    parser.add_argument("--threads", type=int, help="of the model's server (default: as many as there are cores)")
    parser.add_argument("--page", action="store_true", help="only write the page from the rows")
    return parser


def _ask(model: str, path: Path, asked: argparse.Namespace) -> None:
    chosen = [each for each in questions() if asked.half in {None, each.half}][:: asked.every]
    ways = [way for way in ways_of(model) if not asked.way or way.name in asked.way]
    if asked.again:
        QUESTIONS.remove(lambda row: row.model == model and row.way in {way.name for way in ways})
    with serve_file(path, name=model, slots=asked.slots, threads=asked.threads) as server:
        for way in ways:
            for row in asked_now(server.base_url, model, way, chosen, slots=asked.slots):
                QUESTIONS.add(row)
        for way in ways if model == AGENT else ():
            agent.run(server.base_url, model, way)


def _hold(model: str, path: Path, asked: argparse.Namespace) -> None:
    rows = CONVERSATIONS if asked.out is None else transcripts(asked.out)
    chosen = [each for each in conversations() if asked.part in {None, each.part}]
    chosen = [each for each in chosen if not asked.kind or each.kind in asked.kind][:: asked.every]
    ways = [way for way in run.ways_of(model) if not asked.way or way.name in asked.way]
    before = [] if asked.again else [row for row in rows.read() if row.model == model]
    have = {(row.way, row.conversation, row.digest, row.words) for row in before}

    def done(way: str, each: Conversation, words: str) -> bool:
        return (way, each.name, each.digest, words) in have

    for row in run.hold_all(path, model, ways, chosen, done=done, threads=asked.threads):
        rows.add(row)
    if asked.again:
        rows.remove(lambda _: False)  # removes the rows that newer rows have replaced
    held = [row for row in rows.read() if row.model == model]
    print(
        "\n".join(report.tables(judged(held, conversations()), lambda way, words: words == run.words_now(model, way)))
    )


def path_of(name: str) -> Path | None:
    """Return the file of a model, downloaded now if necessary; print why and return None if it is not available."""
    if Path(name).suffix == ".gguf":
        return Path(name)
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "environments.py", f"model-{name}"],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if made.returncode:
        print(f"== SKIPPED: the model {name} was asked nothing", flush=True)
        return None
    return Path(made.stdout.strip())


def ways_of(model: str) -> list[Way]:
    """Return the ways in which a model is asked."""
    return [ALONE, AS_IT_COMES, RAW, PROMPT, *map(prompted, MODELS[model].dialects if model in MODELS else ())]


def asked_now(base_url: str, model: str, way: Way, chosen: Sequence[Question], *, slots: int = 1) -> Iterator[Row]:
    """Ask the questions that have no row yet, in order, and show the progress."""
    have = {QUESTIONS.key(row) for row in QUESTIONS.read()}
    left = [each for each in chosen if (model, way.name, each.name, each.digest) not in have]
    with client_of(base_url, way) as client, ThreadPoolExecutor(slots) as pool:
        rows = pool.map(lambda question: ask(client, model, question, way), left)
        for number, row in enumerate(rows, 1):
            print(f"{model}, {way.name}: {number} of {len(left)}: {row.question}: {row.outcome}", flush=True)
            yield row


if __name__ == "__main__":
    sys.exit(main())
