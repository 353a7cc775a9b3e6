"""Play the tests against something real that is installed apart from the project.

    python tools/stage.py ollama vllm [ARGUMENTS OF PYTEST]

Installs it first (see `environments.py`): servers, then the tests that are marked with their names are run; `o200k`,
the vocabulary without which the tests of Harmony compare nothing with openai-harmony; or a real model, such as
`model-qwen-0.5b`. Where one cannot be installed, a line says why and nothing has failed; but with
PROMPTOOLS_E2E=required, as in CI, that is a failure.

All tests are shared by several processes, so that some run while a vLLM boots, which takes it a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import environments
from recipes.recipe import CannotMakeError

ROOT = Path(__file__).parents[1]
VOCABULARY = "o200k"
SERVERS = "tests/e2e"
"""Where tests ask servers."""
COMPARING = "tests/harmony tests/cli tests/test_tool_tokens.py"
"""Where tests compare with openai-harmony."""
MODELS = "tests/models"
"""Where real models are asked."""
FRAMEWORKS = "tests/frameworks"
"""Where the examples of docs/tasks/frameworks.md are run, by the names of what they need."""


def main(names: Sequence[str], arguments: Sequence[str]) -> int:
    """Install what is called `names`, run its tests, and give the exit status."""
    there: list[str] = []
    for name in names:
        try:
            environments.path_of(name)
        except CannotMakeError as error:
            if os.environ.get("PROMPTOOLS_E2E") == "required":
                print(f"== FAILED: {name} cannot be installed, and PROMPTOOLS_E2E asks for it: {error}", flush=True)
                return environments.UNAVAILABLE
            print(f"== SKIPPED: no test ran against a real {name}: {error}", flush=True)
        else:
            there.append(name)
    if not there:
        return 0
    # collecting the other tests would take longer than some of these
    folders = dict.fromkeys(folder(name) for name in there)
    marks = " or ".join(dict.fromkeys(map(mark, there)))
    chosen = ["-o", f"testpaths={' '.join(folders)}", "-m", marks, "-n", "auto", "--dist", "loadgroup"]
    command = [sys.executable, "-m", "pytest", *chosen, *arguments]
    return subprocess.run(command, check=False, cwd=ROOT).returncode


def folder(name: str) -> str:
    """Return where the tests are that need what is called `name`."""
    if name == VOCABULARY:
        return COMPARING
    if name.startswith("model-"):
        return MODELS
    return FRAMEWORKS if name.startswith("frameworks-") or name == "opencode" else SERVERS


def mark(name: str) -> str:
    """Return the mark of the tests that need what is called `name`."""
    if name == VOCABULARY:
        return "oracle"
    return "models" if name.startswith("model-") else name


def told(words: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line: names come first."""
    count = next((at for at, word in enumerate(words) if word not in environments.ENVIRONMENTS), len(words))
    return words[:count], words[count:]


if __name__ == "__main__":
    sys.exit(main(*told(sys.argv[1:])))
