"""Run commands in a container, with the program `docker` (or podman, which takes the same arguments).

All commands run in one container, in which the workspace is mounted. The container has no capabilities. By default it
has no network, and its own file system is read-only; both a network and a writable file system can be allowed. The
kernel enforces limits on all processes together. Inside the container, timeout(1) ends a command that takes too long,
together with its process group. A process that left the group runs until the container ends.

Docker's system-call filter lets commands set setuid bits, and the filter can only be replaced, not extended. For this
reason, the bits are cleared from the files of the workspace after the container is removed.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from secrets import token_hex

from promptools.errors import UsageError, clip
from promptools.harness.sandbox.local import existing_root
from promptools.harness.sandbox.processes import (
    QUIET,
    ProcessSettings,
    StartedProcess,
    kill_group,
    run_process,
    to_arguments,
)
from promptools.harness.sandbox.programs import INSIDE, NAME, PACKAGE, SandboxPrograms
from promptools.harness.sandbox.protocol import TIMED_OUT, Command, CommandLimits, CommandResult, SandboxError

# Clear setuid and setgid bits of files, where no filter of system calls keeps commands from setting them.
#
# A shell with such a bit would run with the rights of its owner, for everyone on the machine who can reach it.


_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_SPECIAL = stat.S_ISUID | stat.S_ISGID


@dataclass(slots=True)
class _Level:
    """A folder that is being visited. `identity` is its device and inode; `waiting` are subfolders not yet visited."""

    name: str
    identity: tuple[int, int]
    waiting: list[str]


def clear_special_bits(root: Path) -> list[str]:
    """Clear the setuid and setgid bits of all files below a folder; return the paths of the files that had such bits.

    No command may still be running in the folder. Folders keep their setgid bits, which only decide the group of new
    files. If bits of some files cannot be cleared, all others are cleared first, and then `SandboxError` is raised.
    Folders are opened one at a time, so the limit on open files does not limit how deep they may be nested.
    """
    cleared: list[str] = []
    failed: list[str] = []
    levels: list[_Level] = []
    folder = os.open(root, _FOLDER)
    try:
        levels.append(_enter(folder, ".", cleared, failed, levels))
        while levels:
            if not levels[-1].waiting:
                levels.pop()
                folder = _ascend(folder, levels) if levels else folder
                continue
            name = levels[-1].waiting.pop()
            inner = _open_folder(folder, name)
            if inner is None:
                failed.append(_path(levels, name))
                continue
            os.close(folder)
            folder = inner
            levels.append(_enter(folder, name, cleared, failed, levels))
    finally:
        os.close(folder)
    if failed:
        raise SandboxError(
            f"a setuid bit that a command may have set in the workspace {str(root)!r} cannot be cleared: remove, as the"
            f" owner, {', '.join(repr(clip(path)) for path in failed[:3])}{', and others' if failed[3:] else ''}"
        )
    return cleared


def _enter(folder: int, name: str, cleared: list[str], failed: list[str], levels: list[_Level]) -> _Level:
    """Clear the bits of the files in a folder; return a `_Level` with the subfolders to visit."""
    status = os.fstat(folder)
    level = _Level(name, (status.st_dev, status.st_ino), [])
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                level.waiting.append(entry.name)
                continue
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except FileNotFoundError:  # removed by a program outside of the sandbox
                continue
            if stat.S_ISREG(mode) and mode & _SPECIAL:
                path = _path([*levels, level], entry.name)
                (cleared if _cleared(folder, entry.name, mode) else failed).append(path)
    return level


def _cleared(folder: int, name: str, mode: int) -> bool:
    try:
        os.chmod(name, stat.S_IMODE(mode) & ~_SPECIAL, dir_fd=folder)
    except OSError:  # it belongs to another user
        return False
    return True


def _open_folder(folder: int, name: str) -> int | None:
    """Open a subfolder. If that fails, make the subfolder readable and try again; return None if that fails too."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        try:
            os.chmod(name, 0o700, dir_fd=folder)
            return os.open(name, _FOLDER, dir_fd=folder)
        except OSError:
            return None


def _ascend(folder: int, levels: list[_Level]) -> int:
    """Close a folder and open its parent."""
    status = os.stat("..", dir_fd=folder)
    if (status.st_dev, status.st_ino) != levels[-1].identity:
        raise SandboxError(f"the folder {clip(_path(levels, ''))!r} was moved while it was searched for setuid bits")
    above = os.open("..", _FOLDER, dir_fd=folder)
    os.close(folder)
    return above


def _path(levels: list[_Level], name: str) -> str:
    return "/".join([*(level.name for level in levels[1:]), name])


_GRACE = 5
"""Seconds until timeout(1) kills a command that ignores the signal to end."""
_HOST_GRACE = 10.0
"""Seconds from the end of `_GRACE` until the local docker process is killed, in case the container does not answer."""
_KEEP_ALIVE = 'trap "exit 0" TERM; n=0; while [ $n -lt {minutes} ]; do sleep 60 & wait $!; n=$((n+1)); done'
"""The command that the container runs: a shell, not just `sleep`, because the first process has to reap orphans."""


class DockerSandbox:
    """Starts a container of `image` and runs commands in it.

    The container is removed by `close`, or when its lifetime ends. The workspace is mounted at `workspace`. Commands
    run as the current user, who owns the files that they write, or as `user` ("0" is the container's root).
    `writable_git` lets commands change `.git` of the workspace, whose settings and hooks the user's own git would use.
    `writable_system` lets commands install programs.
    """

    def __init__(
        self,
        image: str,
        root: Path | str,
        *,
        workspace: str = "/workspace",
        network: bool = False,
        user: str | None = None,
        writable_git: bool = False,
        writable_system: bool = False,
        cpus: float | None = None,
        lifetime_minutes: int = 120,
        limits: CommandLimits | None = None,
        docker: str = "docker",
        options: Sequence[str] = (),
    ) -> None:
        if image.startswith("-") or not image:
            raise UsageError(f"{image!r} is not a valid image name")
        self.root = existing_root(root)
        if not PurePosixPath(workspace).is_absolute():
            raise UsageError(f"the workspace's path in the container is {workspace!r}; it must be absolute")
        if "," in f"{workspace}{self.root}":
            raise UsageError(f"docker cannot mount paths with a comma: {str(self.root)!r}, {workspace!r}")
        self.workspace = workspace
        self.limits = limits or CommandLimits()
        self._user = f"{os.getuid()}:{os.getgid()}" if user is None else user
        self._network = network
        self._writable_git = writable_git
        self._writable_system = writable_system
        self._cpus = cpus
        self._docker = _find_docker(docker)
        self._processes: list[StartedProcess] = []
        self._programs = SandboxPrograms(INSIDE, ["python3", "python"])
        keep_alive = ["sh", "-c", _KEEP_ALIVE.format(minutes=lifetime_minutes)]
        self._container = self._call("run", *self._run_options(), *options, image, *keep_alive).strip()
        try:
            self._shell = self._find_shell()
        except SandboxError:
            self.close()
            raise

    def __enter__(self) -> DockerSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        seconds = self.limits.seconds(timeout)
        limited = ["timeout", "-k", str(_GRACE), f"{seconds:g}", *to_arguments(command, self._shell)]
        began = time.monotonic()
        arguments = self._exec(limited, cwd=cwd, env=env, interactive=stdin is not None)
        result = run_process(
            ProcessSettings(arguments=arguments, env=os.environ),
            stdin=stdin,
            timeout=seconds + _GRACE + _HOST_GRACE,
            output=max_output or self.limits.output,
        )
        timed_out = time.monotonic() - began >= seconds and (
            result.timed_out or result.exit_code in {TIMED_OUT, 128 + 9}
        )
        code = TIMED_OUT if timed_out else result.exit_code
        return CommandResult(result.output, code, timed_out, result.truncated, result.stopped)

    def start(self, command: Command, *, env: Mapping[str, str] | None = None) -> StartedProcess:
        """Start a command; see `Sandbox.start`. The command gets its own process group, which `kill()` ends."""
        record = ["sh", "-c", 'echo $$; exec "$@"', "sh", *to_arguments(command, self._shell)]
        arguments = self._exec(record, cwd=None, env=env, interactive=True)
        group = ""

        def kill(client: subprocess.Popen[bytes]) -> None:
            if group.isdigit():
                self._succeeds(f"kill -9 -{group}")
            kill_group(client)

        process = StartedProcess(ProcessSettings(arguments=arguments, env=os.environ, kill=kill))
        self._processes.append(process)
        group = _read_line(process)
        if not group.isdigit():
            process.kill()
            raise SandboxError(f"nothing can be started in the container: {clip(group)}")
        return process

    def close(self) -> None:
        """Remove the container with all its processes, and clear setuid and setgid bits that commands have set.

        Raises `SandboxError` if a bit cannot be cleared because the file belongs to another user.
        """
        for process in self._processes:
            process.kill()
        self._processes.clear()
        if self._container:
            container, self._container = self._container, ""
            try:
                self._call("rm", "-f", container)
            finally:
                self._programs.close()
                clear_special_bits(self.root)

    def _find_shell(self) -> str:
        if not self._succeeds("command -v timeout"):
            raise SandboxError("the image has no `timeout` (of coreutils or busybox), which ends commands")
        return "bash" if self._succeeds("command -v bash") else "sh"

    def _run_options(self) -> Iterator[str]:
        limits = self.limits
        yield from ("-d", "--rm", "--name", f"promptools-{token_hex(8)}", "-w", self.workspace)
        yield from ("--mount", f"type=bind,source={self.root},target={self.workspace}")
        if (self.root / ".git").exists() and not self._writable_git:
            yield from ("--mount", f"type=bind,source={self.root}/.git,target={self.workspace}/.git,readonly")
        for source, target in ((self._programs.file, f"/usr/local/bin/{NAME}"), (PACKAGE, f"{INSIDE}/promptools")):
            yield from ("--mount", f"type=bind,source={source},target={target},readonly")
        yield from ("--user", self._user, "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        yield from ("--memory", str(limits.memory), "--memory-swap", str(limits.memory))
        yield from ("--pids-limit", str(limits.processes))
        for name, most in (("core", 0), ("fsize", limits.file_size), ("nofile", limits.open_files)):
            yield from ("--ulimit", f"{name}={most}:{most}")
        if not self._network:
            yield from ("--network", "none")
        if not self._writable_system:
            yield from ("--read-only", "--tmpfs", f"/tmp:rw,exec,nosuid,nodev,size={limits.temporary}")  # noqa: S108
        if self._cpus is not None:
            yield from ("--cpus", f"{self._cpus:g}")

    def _exec(
        self, command: Sequence[str], *, cwd: str | None, env: Mapping[str, str] | None, interactive: bool
    ) -> list[str]:
        """Return the `docker exec` command line that runs `command` in the container."""
        folder = str(PurePosixPath(self.workspace) / (cwd or ""))
        variables = {"HOME": "/tmp", **QUIET, **(env or {})}  # noqa: S108  in the container
        settings = [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]
        attach = ["-i"] if interactive else []
        return [self._docker, "exec", *attach, "-w", folder, *settings, self._container, *command]

    def _succeeds(self, line: str) -> bool:
        """Return whether a shell command succeeds in the container."""
        command = [self._docker, "exec", self._container, "sh", "-c", line]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def _call(self, *arguments: str) -> str:
        command = [self._docker, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SandboxError(f"`docker {arguments[0]}` failed: {clip(done.stderr.strip())}")
        return done.stdout


def _read_line(process: StartedProcess) -> str:
    """Read the first line of a process's output, byte by byte, so that all later output stays in the pipe."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    return line.decode("utf-8", "replace").strip()


def _find_docker(docker: str) -> str:
    program = shutil.which(docker)
    if program is None:
        raise SandboxError(f"{docker!r} is not installed, or not on PATH")
    return program
