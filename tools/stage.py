"""Play the tests against something real that is installed apart from the project.

    python tools/stage.py ollama [ARGUMENTS OF PYTEST]

Installs it first (see `environments.py`): a server, then the tests that are marked with its name are run, or `o200k`,
the vocabulary without which the tests of Harmony compare nothing with openai-harmony. Where it cannot be installed, one
line says why and nothing has failed; but with PROMPTOOLS_E2E=required, as in CI, that is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import environments
from recipes.recipe import CannotMakeError

ROOT = Path(__file__).parents[1]
VOCABULARY = "o200k"
COMPARING = "tests/harmony tests/cli tests/test_tool_tokens.py"
"""Where tests compare with openai-harmony."""


def main(name: str, arguments: list[str]) -> int:
    """Install the server `name`, run its tests, and give the exit status."""
    try:
        environments.path_of(name)
    except CannotMakeError as error:
        if os.environ.get("PROMPTOOLS_E2E") == "required":
            print(f"== FAILED: {name} cannot be installed, and PROMPTOOLS_E2E asks for it: {error}", flush=True)
            return environments.UNAVAILABLE
        print(f"== SKIPPED: no test ran against a real {name}: {error}", flush=True)
        return 0
    # collecting the other tests would take longer than some of these
    where, mark = (COMPARING, "oracle") if name == VOCABULARY else ("tests/e2e", name)
    chosen = ["-o", f"testpaths={where}", "-m", mark]
    command = [sys.executable, "-m", "pytest", *chosen, *arguments]
    return subprocess.run(command, check=False, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
