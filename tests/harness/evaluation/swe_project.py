"""A small project under git, with two issues, as SWE-bench's data set has them."""

import json
import os
import subprocess
import sys

FILES = {
    ".gitignore": "build/\n__pycache__/\n.pytest_cache/\n*.log\n",
    "sums.py": "def add(a, b):\n    return a - b\n\n\ndef negate(a):\n    return -a\n",
    "test_sums.py": "from sums import negate\n\n\ndef test_negate():\n    assert negate(1) == -1\n",
    "kept.log": "tracked, although it is ignored\n",
    "latin.txt": b"caf\xe9\n",
    "docs/notes.txt": "notes\n",
}
ADD_TEST = """\
diff --git a/test_issue.py b/test_issue.py
new file mode 100644
--- /dev/null
+++ b/test_issue.py
@@ -0,0 +1,5 @@
+from sums import add
+
+
+def test_add():
+    assert add(1, 2) == 3
"""
DOUBLE_TEST = ADD_TEST.replace("sums import add", "doubling import double").replace("add(1, 2) == 3", "double(4) == 8")
EVAL_SCRIPT = f"""\
#!/bin/bash
set -uxo pipefail
git apply -v - <<'PATCH'
{{test_patch}}PATCH
: '>>>>> Start Test Output'
{sys.executable} -m pytest -rA -p no:cacheprovider -c /dev/null --rootdir . test_sums.py test_issue.py
: '>>>>> End Test Output'
"""


def git(*arguments, cwd, text=True, stdin=None):
    """Run git with none of this machine's settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
    done = subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True, input=stdin)
    return done.stdout.decode().strip() if text else done.stdout


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def make_clone(folder):
    """Make the clone; return the hash of the commit with the issues, which later commits resolve."""
    folder.mkdir(parents=True)
    git("init", "-q", ".", cwd=folder)
    write(folder, FILES)
    git("add", "--all", "--force", ".", cwd=folder)
    git("commit", "-qm", "first", cwd=folder)
    commit = git("rev-parse", "HEAD", cwd=folder)
    write(
        folder, {"sums.py": FILES["sums.py"].replace("a - b", "a + b"), "doubling.py": "def double(a): return 2 * a\n"}
    )
    git("add", "--all", ".", cwd=folder)
    git("commit", "-qm", "the solution", cwd=folder)
    git("tag", "solved", cwd=folder)
    return commit


def instances(commit, first="own__sums-1", second="own__sums-2"):
    """Return the two instances, with the fields that swebench 5 reads."""
    common = {
        "repo": "own/sums",
        "base_commit": commit,
        "version": "1.0",
        "patch": "",
        "hints_text": "",
        "created_at": "2026-01-01T00:00:00Z",
        "environment_setup_commit": commit,
        "PASS_TO_PASS": json.dumps(["test_sums.py::test_negate"]),
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
    }

    def made(name, problem, test_patch, test):
        return {
            "instance_id": name,
            "problem_statement": problem,
            "test_patch": test_patch,
            "FAIL_TO_PASS": json.dumps([f"test_issue.py::{test}"]),
            "eval_script": EVAL_SCRIPT.replace("{test_patch}", test_patch),
            "image": f"swebench/{name.replace('__', '_1776_')}:latest",
            **common,
        }

    return [
        made(first, "The function add returns wrong sums.", ADD_TEST, "test_add"),
        made(second, "There is no function double.", DOUBLE_TEST, "test_add"),
    ]
