"""Run commands without a sandbox, for machines that are sandboxes themselves."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from promptools.errors import UsageError
from promptools.harness.sandbox.processes import (
    SYSTEM_PATH,
    ProcessSettings,
    ProcessWatch,
    StartedProcess,
    base_environment,
    kill_group,
    run_process,
    started_by,
    to_arguments,
)
from promptools.harness.sandbox.programs import PACKAGE, PYTHON, SandboxPrograms, program_environment
from promptools.harness.sandbox.protocol import Command, CommandLimits, CommandResult


class LocalSandbox:
    """Runs commands as the current user, with all rights of that user. Only time, output and processes are limited.

    Nothing is confined. `allow_unsandboxed=True` confirms that this is intended, for example in a throw-away container.
    A process that leaves the command's process group, for example by setsid(1), may go on after the command has ended.
    """

    def __init__(
        self, root: Path | str, *, allow_unsandboxed: bool = False, limits: CommandLimits | None = None
    ) -> None:
        if not allow_unsandboxed:
            raise UsageError(
                "LocalSandbox confines nothing: commands of the model could do whatever you can do. Use"
                " BubblewrapSandbox or DockerSandbox, or pass allow_unsandboxed=True if this machine may be lost"
            )
        if os.name != "posix":
            raise UsageError("LocalSandbox needs a POSIX system")
        self.root = existing_root(root)
        self.limits = limits or CommandLimits()
        self._processes: list[StartedProcess] = []
        self._programs = SandboxPrograms(PACKAGE.parent, [PYTHON])

    def __enter__(self) -> LocalSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workspace(self) -> str:
        """The path of the workspace, which is the same for commands as on this machine."""
        return str(self.root)

    def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        max_output: int | None = None,
    ) -> CommandResult:
        """Run a command to its end; see `Sandbox.run`."""
        folder = self.root / (cwd or "")
        if not folder.is_dir():
            return CommandResult(f"{cwd}: no such folder\n", 126)
        return run_process(
            self._settings(command, folder, env),
            stdin=stdin,
            timeout=self.limits.seconds(timeout),
            output=max_output or self.limits.output,
        )

    def start(self, command: Command, *, env: Mapping[str, str] | None = None) -> StartedProcess:
        """Start a command; see `Sandbox.start`."""
        process = StartedProcess(self._settings(command, self.root, env))
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End all processes that were started."""
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.kill()
        self._processes.clear()
        self._programs.close()

    def _settings(self, command: Command, folder: Path, env: Mapping[str, str] | None) -> ProcessSettings:
        shell = "bash" if shutil.which("bash") else "sh"
        path, home = os.environ.get("PATH", SYSTEM_PATH), os.environ.get("HOME", str(Path.home()))
        programs = program_environment(self._programs.folder, path)
        environment = base_environment({**programs, **(env or {})}, path=path, home=home)
        return ProcessSettings(
            arguments=to_arguments(command, shell),
            env=environment,
            cwd=folder,
            watch=ProcessWatch(self.limits),
            kill=_end_all,
        )


def existing_root(root: Path | str) -> Path:
    """Return the absolute path of a workspace, without symbolic links; raise `UsageError` if it is not a folder."""
    folder = Path(root).resolve()
    if not folder.is_dir():
        raise UsageError(f"the workspace {str(root)!r} is not a folder")
    return folder


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and the processes that it started. A second round kills those started during the first."""
    for _ in range(2):
        for each in started_by(process.pid) - {process.pid}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
    kill_group(process)
