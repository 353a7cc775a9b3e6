"""Run commands in a sandbox of Linux namespaces, which bubblewrap sets up without privileges.

The file system that a command sees is built from scratch: the system's programs, read-only; a few files of /etc; the
workspace; and folders in memory that vanish with the command. Each command gets its own namespaces. The first process
of the command is the `init` of these namespaces. When that process ends, or is killed, the kernel ends every other
process inside, even one that left its group or session. Only then does bwrap return.

Three things need care beyond what bubblewrap does by itself:

- Folders in memory have no size limit, and one of them is the root of the file system. Each of them is therefore made
  read-only, or gets a size.
- If promptools runs as root, the kernel treats the user inside the sandbox as root for access to files, and /proc/sys
  would be writable. For this reason /proc is read-only. The kernel also does not limit the number of root's processes,
  so `UsageWatch` limits it.
- The settings and hooks in `.git` of the workspace name programs that the user's own git would run later, outside of
  the sandbox. For this reason `.git` is read-only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from promptools.errors import UsageError, clip
from promptools.harness.sandbox.local import existing_root
from promptools.harness.sandbox.processes import (
    SYSTEM_PATH,
    ProcessSettings,
    StartedProcess,
    UsageWatch,
    base_environment,
    children,
    kill_group,
    run_process,
    to_arguments,
    with_limits,
)
from promptools.harness.sandbox.programs import INSIDE, PACKAGE, PYTHON, SandboxPrograms, program_environment
from promptools.harness.sandbox.protocol import Command, CommandLimits, CommandResult, SandboxError
from promptools.harness.sandbox.system_calls import open_filter

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")
SYSTEM_FILES = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "group",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
)
"""The files of /etc that programs need. None of them holds a secret."""
NETWORK_FILES = ("hosts", "resolv.conf")
ORDINARY_USER = 1000
_NAMESPACES = ("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--hostname", "sandbox")
_CHECK_SECONDS = 30
_END_SECONDS = 2


class BubblewrapSandbox:
    """Runs commands in Linux namespaces, where they see only the system's programs and the workspace.

    `network` lets commands use the network. `read_only` and `writable` are further folders or files of this machine
    that commands see under the same paths. `writable_git` lets commands change `.git` of the workspace. `path` is
    searched for programs. Needs Linux and `bwrap` 0.8 or later. Raises `SandboxError` if `bwrap` is missing, or if the
    system does not allow it to make a sandbox.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        network: bool = False,
        read_only: Sequence[Path | str] = (),
        writable: Sequence[Path | str] = (),
        writable_git: bool = False,
        path: str = SYSTEM_PATH,
        limits: CommandLimits | None = None,
        bwrap: Path | str = "bwrap",
    ) -> None:
        self.root = existing_root(root)
        if self.root == Path("/") or _shadows_system(self.root):
            raise UsageError(
                f"the workspace {self.workspace!r} is or contains a system folder, or one of which commands get a"
                " private copy, such as /tmp; choose another"
            )
        self.limits = limits or CommandLimits()
        self._network = network
        self._read_only = [Path(entry).absolute() for entry in read_only]
        self._writable = [Path(entry).absolute() for entry in writable]
        self._writable_git = writable_git
        self._path = path
        self._bwrap = _find_bwrap(bwrap)
        self._programs = SandboxPrograms(INSIDE, [PYTHON, "python3"])
        self._processes: list[StartedProcess] = []
        self._check()
        self._shell = "bash" if self._succeeds("command -v bash") else "sh"

    def __enter__(self) -> BubblewrapSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workspace(self) -> str:
        """The path of the workspace, which is the same in the sandbox and on this machine.

        Programs in the workspace, such as those of a virtual environment, may contain this path.
        """
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
        with self._settings(command, cwd, env) as settings:
            return run_process(
                settings,
                stdin=stdin,
                timeout=self.limits.seconds(timeout),
                output=max_output or self.limits.output,
            )

    def start(self, command: Command, *, env: Mapping[str, str] | None = None) -> StartedProcess:
        """Start a command; see `Sandbox.start`."""
        with self._settings(command, None, env) as settings:
            process = StartedProcess(settings)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End all processes that were started."""
        for process in self._processes:
            process.kill()
        self._processes.clear()
        self._programs.close()

    @contextlib.contextmanager
    def _settings(self, command: Command, cwd: str | None, env: Mapping[str, str] | None) -> Generator[ProcessSettings]:
        """Yield the settings for starting a command. Start it inside the `with` block.

        The file descriptor of the system-call filter is closed when the block ends.
        """
        with open_filter() as calls:
            yield ProcessSettings(
                arguments=self._arguments(command, cwd, calls),
                env=base_environment(
                    {**program_environment(f"{INSIDE}/bin", self._path), **(env or {})},
                    path=self._path,
                    home="/tmp",  # noqa: S108  the private one
                ),
                watch=UsageWatch(self.limits, self.root),
                kill=_end_namespace,
                descriptors=(calls,),
            )

    def _arguments(self, command: Command, cwd: str | None, calls: int) -> list[str]:
        """Return the command line of bwrap. `calls` is the file descriptor of the system-call filter."""
        inner = with_limits(to_arguments(command, self._shell), self.limits)
        folder = str(PurePosixPath(self.workspace) / (cwd or ""))
        return [self._bwrap, *self._options(), "--seccomp", str(calls), "--chdir", folder, "--", *inner]

    def _options(self) -> Iterator[str]:
        """Yield the options of bwrap. Their order matters: later mounts cover earlier ones."""
        yield from _NAMESPACES
        yield from ("--die-with-parent", "--new-session", "--as-pid-1")
        if os.getuid() == 0:
            yield from ("--uid", str(ORDINARY_USER), "--gid", str(ORDINARY_USER))
        if self._network:
            yield "--share-net"
        yield from _system_mounts(network=self._network)
        yield from ("--proc", "/proc", "--dev", "/dev")
        for folder in ("/dev/shm", "/tmp"):  # noqa: S108  the private ones
            yield from ("--size", str(self.limits.temporary), "--tmpfs", folder)
        yield from ("--symlink", "../tmp", "/var/tmp")  # noqa: S108
        yield from ("--ro-bind", str(self._programs.folder), f"{INSIDE}/bin")
        yield from ("--ro-bind", str(PACKAGE), f"{INSIDE}/promptools")
        if not any(Path(sys.base_prefix).is_relative_to(folder) for folder in (*SYSTEM_FOLDERS, self.root)):
            yield from ("--ro-bind", sys.base_prefix, sys.base_prefix)
        yield from ("--bind", self.workspace, self.workspace)
        git = self.root / ".git"
        if git.exists() and not self._writable_git:
            yield from ("--ro-bind", str(git), str(git))
        for entry in self._read_only:
            yield from ("--ro-bind", str(entry), str(entry))
        for entry in self._writable:
            yield from ("--bind", str(entry), str(entry))
        for folder in ("/proc", "/dev", "/"):
            yield from ("--remount-ro", folder)

    def _check(self) -> None:
        """Raise `SandboxError` if no sandbox can be made on this machine."""
        with open_filter() as calls:
            command = [self._bwrap, *self._options(), "--seccomp", str(calls), "--", "true"]
            try:
                done = subprocess.run(
                    command,
                    check=False,
                    capture_output=True,
                    text=True,
                    timeout=_CHECK_SECONDS,
                    env={"PATH": self._path},
                    pass_fds=[calls],
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise SandboxError(f"bubblewrap does not run: {error}") from error
        if done.returncode != 0:
            raise SandboxError(
                f"bubblewrap cannot make a sandbox here: {clip(done.stderr.strip())}. It needs version 0.8, and"
                " unprivileged user namespaces, which most containers and some systems forbid"
                " (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
            )

    def _succeeds(self, line: str) -> bool:
        """Return whether a shell command succeeds in the sandbox."""
        command = [self._bwrap, *self._options(), "--", "sh", "-c", line]
        done = subprocess.run(command, check=False, capture_output=True, env={"PATH": self._path})
        return done.returncode == 0


def _end_namespace(process: subprocess.Popen[bytes]) -> None:
    """Kill the first process inside the sandbox, and wait until bwrap ends.

    The kernel then ends all other processes inside before the first process ends, and bwrap waits for the first
    process. If bwrap itself were killed, the processes inside would end only some time later.
    """
    for child in children(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:  # bwrap has not yet started a child
        kill_group(process)


def _find_bwrap(bwrap: Path | str) -> str:
    program = shutil.which(bwrap)
    if program is None:
        raise SandboxError(
            f"{str(bwrap)!r} is not installed: the package is called bubblewrap on all distributions;"
            " DockerSandbox (--sandbox docker --image IMAGE) does not need it"
        )
    return program


def _shadows_system(root: Path) -> bool:
    return any(Path(folder).is_relative_to(root) for folder in (*SYSTEM_FOLDERS, "/proc", "/dev", "/tmp"))  # noqa: S108


def _system_mounts(*, network: bool) -> Iterator[str]:
    """Yield the options that mount the system's programs, and the files that they need, at their usual paths."""
    for name in SYSTEM_FOLDERS:
        folder = Path(name)
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), name)
        elif folder.is_dir():
            yield from ("--ro-bind", name, name)
    for name in (*SYSTEM_FILES, *(NETWORK_FILES if network else ())):
        file = Path("/etc") / name
        if file.exists():
            yield from ("--ro-bind", str(file.resolve()), str(file))
