"""The same suites on every major of openai that is supported, each in an environment of its own.

openai 3 uses httpx2; 1 and 2 use httpx, and their environments have no httpx2. The project's own environment has openai
3 and both HTTP libraries, so the whole suite is run on 3 already: here only the tests of the SDK itself are, on the
release of 3 that is pinned.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITES = ("tests/test_client.py", "tests/test_wrapping.py", "tests/transport", "tests/proxy", "tests/harness/agent")
ALIKE = (
    "harness/agent/test_paper_checks.py", "harness/agent/test_trajectories_opened.py", "proxy/faults",
    "proxy/test_admission_limits.py", "proxy/test_disconnect_time.py", "proxy/test_drain.py",
    "proxy/test_extension.py", "proxy/test_head_timeout.py", "proxy/test_inspector.py", "proxy/test_inspector_page.py",
    "proxy/test_kept_secrets.py", "proxy/test_learned_formats.py", "proxy/test_listening.py",
    "proxy/test_loop_time.py", "proxy/test_metrics_key.py",
    "proxy/test_metrics_page.py", "proxy/test_mounting.py", "proxy/test_named_keys.py", "proxy/test_operations.py",
    "proxy/test_recording.py", "proxy/test_request_reports.py", "proxy/test_request_targets.py", "proxy/test_serve.py",
    "proxy/test_serve_config.py", "proxy/test_shared_state.py", "proxy/test_spans.py", "proxy/test_startup.py",
    "proxy/test_workers.py",
)  # fmt: skip
"""Processes, pages, servers' faults and policies, in which the HTTP library has no part, or is not there; and
templates, which need Jinja2."""


EXHAUSTIVE = ("tests/transport/test_probes.py", "tests/proxy/test_uploads.py")
"""What `--sample` leaves out, although it is all about the HTTP library."""


CLIENTS = ("tests/test_client.py", "tests/test_wrapping.py", "tests/transport")
"""For 2, which uses the same httpx as 1 and differs in what the client itself does."""


SDK = ("tests/test_client.py", "tests/test_wrapping.py")
"""For 3, which `make test-all` runs with both HTTP libraries: another release of it differs in the client alone."""


@pytest.mark.majors
@pytest.mark.parametrize(("name", "suites"), [("openai-1", SUITES), ("openai-2", CLIENTS), ("openai-3", SDK)])
def test_a_major(name, suites):
    maker = [sys.executable, str(ROOT / "tools" / "environments.py"), name]
    python = subprocess.run(maker, check=True, capture_output=True, text=True, timeout=1800).stdout.strip()
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    env["PYTHONPATH"] = str(ROOT)
    # a test that hangs ends the process, and says where
    hang = ("-o", "faulthandler_timeout=600", "-o", "faulthandler_exit_on_timeout=true")
    # of tests in many forms a sample: the forms differ in what is sent, the majors in the library that sends it
    sampled = ("--sample", "16", *suites, *(f"--ignore=tests/{path}" for path in ALIKE))
    for paths in (sampled,) if suites is SDK else (sampled, EXHAUSTIVE):
        command = [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not clock", *hang, *paths]
        done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=1700)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-10000:]
