"""The process in which bfcl-eval runs: another Python, since the package pins old versions of many others."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from promptools.errors import PromptoolsError, UsageError
from promptools.evaluation.bfcl.bfcl_worker import PACKAGE
from promptools.json_values import is_object

WORKER = Path(__file__).with_name("bfcl_worker.py")
INSTALL = (
    "It pins old versions, so install it apart, with Python 3.10 to 3.12: `python3.11 -m venv bfcl`,"
    " `bfcl/bin/pip install bfcl-eval soundfile`; then add --bfcl-python bfcl/bin/python"
)
LOG = "bfcl.log"
_LOG_END = 800


def find_python(path: str | None) -> str:
    """Return the program of the Python that has bfcl-eval: `path`, or this one; raise `UsageError` if there is none."""
    if path is not None:
        program = shutil.which(path)
        if program is None:
            raise UsageError(f"there is no program {path!r}: --bfcl-python is the Python that has bfcl-eval. {INSTALL}")
        return program
    if importlib.util.find_spec(PACKAGE) is None:
        raise UsageError(f"bfcl-eval is not installed here. {INSTALL}")
    return sys.executable


class BfclProcess:
    """bfcl-eval at work in a folder, where what it prints goes to `bfcl.log`.

    `settings` are the first line of `bfcl_worker`. Raises `UsageError` if the package cannot be imported, or does not
    know the categories. Use it in a `with` block.
    """

    def __init__(self, python: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._python = python
        self._log = folder / LOG
        folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 the user names the program
                [python, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(folder),
                text=True,
                encoding="utf-8",
            )
        try:
            self._send(json.dumps(settings))
            ready = self._read()
        except BaseException:
            self.close()
            raise
        self.version: str = ready["version"]
        """The version of bfcl-eval."""
        self.categories: list[str] = ready["categories"]
        """The categories, those of collections among them."""

    def start(self, base_url: str, api_key: str) -> list[str]:
        """Begin to ask a server; return the ids of the questions that were chosen, with what they depend on."""
        self._send(json.dumps({"base_url": base_url, "api_key": api_key}))
        ids: list[str] = self._read()["ids"]
        return ids

    def answers(self) -> Iterator[tuple[str, str]]:
        """Yield the id of each new answer with its error, or an empty text; at the end all are checked."""
        while (event := self._read())["event"] != "done":
            yield event["id"], event["error"]

    def close(self) -> None:
        """End the process; idempotent."""
        for stream in filter(None, (self._process.stdin, self._process.stdout)):
            # what was to be written may be for a process that has ended
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def _read(self) -> dict[str, Any]:
        """Return the next event; raise `UsageError` for one that says what is wrong."""
        assert self._process.stdout is not None
        try:
            event: Any = json.loads(self._process.stdout.readline())
        except ValueError:
            raise self._ended() from None
        if not is_object(event):
            raise self._ended()
        if event["event"] == "missing":
            raise UsageError(f"{self._python} cannot import bfcl_eval: {event['message']}. {INSTALL}")
        if event["event"] == "unknown":
            raise UsageError(f"{event['message']}. There are: {', '.join(event['names'])}")
        return event

    def _ended(self) -> PromptoolsError:
        self.close()
        text = self._log.read_text(encoding="utf-8", errors="replace").strip()
        return PromptoolsError(
            f"bfcl-eval ended with status {self._process.returncode}; its log {str(self._log)!r} ends: "
            f"{text[-_LOG_END:] or '(nothing)'}"
        )


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of bfcl-eval; a proxy on this machine is not asked for through one of the environment."""
    hosts = ",".join(filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1"]))
    return {**os.environ, "BFCL_PROJECT_ROOT": str(folder.resolve()), "NO_PROXY": hosts, "no_proxy": hosts}
