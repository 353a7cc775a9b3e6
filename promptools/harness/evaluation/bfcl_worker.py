"""A program that asks a model the questions of bfcl-eval. It runs in the Python in which bfcl-eval is installed.

The program uses bfcl-eval's own generator and checker, and nothing from promptools. It needs at least Python 3.10. The
environment variable BFCL_PROJECT_ROOT names the folder of the run.

The first line of standard input is a JSON object with `model`, `categories`, `limit` (0: all questions), `seed`,
`threads`, and `request` (keys that are added to each request). The program writes events as JSON lines to standard
output. If bfcl-eval cannot be imported, it writes `missing` and ends; for an unknown category it writes `unknown` and
ends. Otherwise it writes `ready` and waits for a second line of input with `base_url` and `api_key`. Then it writes
`chosen`, `answered` for each question, and `done`. It also ends when its standard input ends. What bfcl-eval
prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import statistics
import sys
import threading
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PACKAGE = "bfcl_eval"
NAME = "promptools"
"""The model's name within bfcl-eval. It must not contain `_`, which bfcl-eval would replace by `/`, and it must be
valid as part of a Python identifier."""
FAILED = "Error during inference:"
"""The beginning of a result for a question whose request failed."""
OVERFLOW = "context_length_exceeded"
"""The error code for a conversation that does not fit into the model's context. Unlike the results of other
failures, a result with this code is kept when a run is resumed."""


def main() -> None:
    """Run bfcl-eval with the settings in the first line of standard input."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def emit(event: str, **values: Any) -> None:
        events.write(json.dumps({"event": event, **values}) + "\n")
        events.flush()

    settings = json.loads(sys.stdin.readline())
    try:
        categories = _load().parse_test_category_argument(settings["categories"])
    except ImportError as error:
        emit("missing", module=error.name or "", message=str(error))
        return
    except Exception as error:  # noqa: BLE001 the package raises no class of its own
        mapping = _module("constants.category_mapping")
        emit("unknown", message=str(error), names=[*mapping.TEST_COLLECTION_MAPPING, *mapping.ALL_CATEGORIES])
        return
    emit("ready", version=version("bfcl-eval"), categories=categories)
    if not (line := sys.stdin.readline()):
        return
    server = json.loads(line)
    # where the package's handler reads them
    os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"] = server["base_url"], server["api_key"]
    threading.Thread(target=_end_with_input, daemon=True).start()
    _run(settings, categories, emit)
    emit("done")


def _run(settings: dict[str, Any], categories: list[str], emit: Callable[..., None]) -> None:
    utils = _load()
    chosen = {name: choose(utils.load_dataset_entry(name), settings["limit"], settings["seed"]) for name in categories}
    Path(_module("constants.eval_config").TEST_IDS_TO_GENERATE_PATH).write_text(json.dumps(chosen), encoding="utf-8")
    emit("chosen", ids=[identity for ids in chosen.values() for identity in ids])
    _register(settings["model"], settings["request"], emit)
    arguments = SimpleNamespace(
        model=[NAME],
        test_category=categories,
        temperature=0.001,
        include_input_log=False,
        exclude_state_log=True,
        num_threads=settings["threads"],
        result_dir=None,
        allow_overwrite=False,
        run_ids=True,
    )
    _module("_llm_response_generation").main(arguments)
    try:
        _module("eval_checker.eval_runner").main([NAME], categories, None, None, partial_eval=True)
    except statistics.StatisticsError as error:
        # the package computes the deviation of one latency for the leaderboard's table; the scores have been written
        sys.stderr.write(f"no table of the leaderboard: {error}\n")


def choose(entries: list[dict[str, Any]], limit: int, seed: int) -> list[str]:
    """Return the ids of `limit` random questions, and of the entries that these questions depend on.

    A `limit` of 0 means all questions. With the same seed, a larger limit adds questions to those that a smaller limit
    chooses.
    """
    questions = [entry for entry in entries if "_prereq_" not in entry["id"]]
    if limit:
        random.Random(seed).shuffle(questions)  # noqa: S311 drawn again from the seed
        questions = questions[:limit]
    wanted = {identity for entry in questions for identity in [entry["id"], *entry.get("depends_on", [])]}
    return [entry["id"] for entry in entries if entry["id"] in wanted]


def _register(model: str, request: dict[str, Any], emit: Callable[..., None]) -> None:
    """Add the model to bfcl-eval's table of models, with the handler for Chat Completions with tools."""
    configuration = _module("constants.model_config")
    base = _module("model_handler.api_inference.openai_completion").OpenAICompletionsHandler

    def generate_with_backoff(self: Any, **keys: Any) -> Any:
        try:
            return base.generate_with_backoff(self, **{**keys, "model": model, "extra_body": request})
        except Exception as error:
            if getattr(error, "code", None) == OVERFLOW:
                raise RuntimeError(OVERFLOW) from error  # the package keeps only the text of an error
            raise

    def write(self: Any, result: dict[str, Any], result_dir: Any, **_: Any) -> None:
        # without `update_mode`, which rewrites the whole file, at most one line can be cut off
        base.write(self, result, result_dir)
        failed = "traceback" in result and str(result["result"]).startswith(FAILED)
        emit("answered", id=result["id"], error=str(result["result"]) if failed else "")

    configuration.MODEL_CONFIG_MAPPING[NAME] = configuration.ModelConfig(
        model_name=NAME,
        display_name=model.replace(",", " "),
        url="",
        org="",
        license="",
        model_handler=type("Handler", (base,), {"generate_with_backoff": generate_with_backoff, "write": write}),
        is_fc_model=True,
        underscore_to_dot=True,
    )


def _load() -> Any:
    """Import the required parts of bfcl-eval, and return its module `utils`."""
    for name in ("_llm_response_generation", "eval_checker.eval_runner"):
        _module(name)
    return _module("utils")


def _module(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


def _end_with_input(lines: Iterable[str] = sys.stdin) -> None:
    """End this process immediately when standard input ends, which means that the parent process has ended."""
    for _ in lines:
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
