"""What a tool returns that has images besides its text."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Formats that servers of vision models read."""
MAX_IMAGE = 8 * 2**20
"""Bytes of an image that is shown to a model."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Text for the model, and images that it is shown, as parts `image_url` of Chat Completions."""

    text: str
    images: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return self.text


def image_part(content: bytes, mime_type: str) -> dict[str, Any] | None:
    """Return an image as a part; None for a format that servers do not read, or one that is too large."""
    if mime_type not in IMAGE_TYPES or len(content) > MAX_IMAGE:
        return None
    data = base64.b64encode(content).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}
