"""Names that every API takes, for tools whose servers may call them anything."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

LONGEST = 64
"""Characters that OpenAI's API allows."""
_DIGEST = 8
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(server: str, tool: str, taken: Collection[str]) -> str:
    """Return `server__tool` within what names may be; where that is changed or taken, a digest makes it unique."""
    full = f"{server}__{tool}"
    name = _OTHER.sub("_", full)
    if len(name) <= LONGEST and name not in taken:
        return name
    digest = hashlib.sha256(full.encode("utf-8", "replace")).hexdigest()[:_DIGEST]
    return f"{name[: LONGEST - _DIGEST - 1]}_{digest}"
