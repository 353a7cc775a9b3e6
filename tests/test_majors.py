"""The same suites on every major of openai that is supported, each in an environment of its own.

openai 3 stands on httpx2 and its environment has no httpx; 1 and 2 stand on httpx and theirs have no httpx2.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parent.parent
SUITES = ("tests/test_client.py", "tests/test_wrapping.py", "tests/transport", "tests/proxy", "tests/agent")
ALIKE = ("test_workers.py", "test_inspector.py", "test_inspector_page.py", "faults")
"""Of the proxy's: processes, pages and servers' faults, in which the HTTP library has no part, or is not there."""


@pytest.mark.majors
@pytest.mark.parametrize("name", ["openai-1", "openai-2", "openai-3"])
def test_a_major(name):
    maker = [sys.executable, str(ROOT / "tools" / "environments.py"), name]
    python = subprocess.run(maker, check=True, capture_output=True, text=True, timeout=600).stdout.strip()
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    env["PYTHONPATH"] = str(ROOT)
    command = [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *SUITES]
    command += [f"--ignore=tests/proxy/{name}" for name in ALIKE]
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
