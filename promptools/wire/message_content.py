"""A message's `content`: a string, a list of parts, null, or whatever a client put there."""

from __future__ import annotations

import json
from typing import Any

from promptools.json_values import is_array
from promptools.wire.json_types import as_object


def split_content(content: Any) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Return the text of `content`, a string or parts, and the parts that are not text (images, sound, files)."""
    if isinstance(content, str):
        return content, ()
    if content is None:
        return "", ()
    if not is_array(content):
        return json.dumps(content, ensure_ascii=False), ()
    texts: list[str] = []
    others: list[dict[str, Any]] = []
    for part in content:
        data = as_object(part)
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(data.get("text"), str):
            texts.append(data["text"])
        elif data:
            others.append(data)
    return "\n".join(texts), tuple(others)
