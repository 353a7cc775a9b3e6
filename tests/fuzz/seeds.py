"""Findings that are kept: one small JSON file each, replayed by `test_seeds.py`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.check import Failure, Input
from fuzz.inputs import ReplyInput
from fuzz.upstream import ExchangeInput

FOLDER = Path(__file__).parent / "seeds"


def keep(given: Input, found: Failure, folder: Path = FOLDER) -> Path:
    """Write a finding to a file, named after the property, the dialect, and a digest of the input."""
    data = {"property": found.name, "input": given.to_json()}
    text = json.dumps(data, indent=2, sort_keys=False) + "\n"  # half a surrogate pair stays an escape
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    path = folder / f"{found.name}-{given.dialect}-{digest}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def kept(folder: Path = FOLDER) -> Iterator[tuple[str, Input]]:
    """Yield the name and the input of each file."""
    for path in sorted(folder.glob("*.json")):
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
        kind = ExchangeInput if "answer" in data["input"] else ReplyInput
        yield path.stem, kind.from_json(data["input"])
