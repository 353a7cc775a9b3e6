"""The search for a config when none is passed, and the user's trust in configs found that way.

Trust is stored in the user's state folder, in one file for each config. The file holds the config's real path and a
digest of everything that the config uses: addresses, environment variables with API keys, and files. Separate files
need no lock, because nothing is lost if two processes write at the same time.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from promptools.errors import UsageError
from promptools.profiles import (
    Config,
    ConfigFile,
    ConfigReach,
    find_config,
    find_configs,
    parse_config,
    reach_of,
    read_dialects,
)
from promptools.profiles.config_reach import shown_text
from promptools.profiles.tables import Location
from promptools.transport.whole_file import write_whole


def find_here() -> ConfigFile | None:
    """Return the config file that the environment names, or the first that is found in the usual folders, or None."""
    return find_config(os.environ, Path.cwd(), home_folder())


def find_all_here() -> list[ConfigFile]:
    """Return all config files that exist, in the order of the search."""
    return find_configs(os.environ, Path.cwd(), home_folder())


def home_folder() -> Path | None:
    """Return the user's home folder; None if there is none, as in a container, or if its path is relative."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home if home.is_absolute() else None


def read_found(found: ConfigFile) -> Config:
    """Read a config that was found, and decide whether its content may be used; if so, read its dialects too."""
    try:
        with found.path.open("rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            data = file.read()
    except OSError as error:
        raise Location(str(found.path)).error(f"cannot be read: {error.strerror}") from None
    config = parse_config(data, found.path)
    if found.standing != "untrusted":
        return read_dialects(replace(config, standing=found.standing))
    reach = reach_of(config)
    if is_trusted(found.path, reach):
        return read_dialects(replace(config, standing="trusted"))
    if reach.asked_about or _is_planted(found.path.parent, owner):
        return replace(config, standing="untrusted")
    return read_dialects(replace(config, standing="local"))


def _is_planted(folder: Path, owner: int) -> bool:
    """Return whether another user may have planted the config file: they own it, and anyone may write to the folder.

    An example of such a folder is /tmp. A planted file is a risk even if it reaches only a local port, which may be the
    other user's. In other folders the owner is not checked, because in a container the host's files belong to other
    users.
    """
    if not hasattr(os, "geteuid"):
        return False
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH) and owner not in {os.geteuid(), 0}
    except OSError:
        return True


def is_trusted(path: Path, reach: ConfigReach) -> bool:
    """Return whether the user trusts the config at `path`, and has agreed to everything in `reach`."""
    record = _record_path(path)
    if record is None:
        return False
    try:
        kept = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return bool(kept == _record(path, reach))


def keep_trust(path: Path, reach: ConfigReach) -> None:
    """Record that the user trusts the config at `path` and everything in `reach`; raise `UsageError` if that fails."""
    record = _record_path(path)
    if record is None:
        raise _not_kept(path, "there is no home folder")
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(record, json.dumps(_record(path, reach)))
    except OSError as error:
        raise _not_kept(path, f"{record.parent}: {error.strerror}") from error


def drop_trust(path: Path) -> bool:
    """Remove the record of trust in the config at `path`; return whether there was a record."""
    record = _record_path(path)
    try:
        if record is None or not record.is_file():
            return False
        record.unlink()
    except OSError as error:
        raise UsageError(f"the trust in {str(path)!r} cannot be dropped: {record}: {error.strerror}") from error
    return True


def _not_kept(path: Path, why: str) -> UsageError:
    shown = quote(shown_text(str(path)))
    return UsageError(
        f"the trust in {shown} cannot be kept ({why}): name the file each time, with --config {shown}, config= or"
        f" PROMPTOOLS_CONFIG={shown}, or set XDG_STATE_HOME to a folder that can be written"
    )


def _record_path(path: Path) -> Path | None:
    """Return the path of the file that records trust in a config; None if no record can be stored."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = home_folder()
    if not Path(state).is_absolute():  # a relative path may lead to a folder of the config's author
        if home is None:
            return None
        state = str(home / ".local" / "state")
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    return Path(state) / "promptools" / "trusted-configs" / f"{name}.json"


def _record(path: Path, reach: ConfigReach) -> dict[str, Any]:
    return {"path": os.path.realpath(path), "reach": reach.digest}
