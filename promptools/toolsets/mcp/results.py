"""Results of MCP tools as text, which is what a model's tool result is."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mimetypes
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock


def result_text(result: CallToolResult, folder: Path | None) -> str:
    """Return a result as text: its texts, or else its structured content.

    Servers repeat the structured content as text, so it counts only where there is no text. Images and other files are
    named with type and size, and written to `folder` if there is one.
    """
    parts = list(_parts(result.content, folder))
    has_text = any(block.type in {"text", "resource"} for block in result.content)
    if result.structured_content is not None and not has_text:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts) or "[the tool returned nothing]"


def _parts(content: list[ContentBlock], folder: Path | None) -> Iterator[str]:
    from mcp.types import EmbeddedResource, ResourceLink, TextContent, TextResourceContents

    for block in content:
        if isinstance(block, TextContent):
            yield block.text
        elif isinstance(block, ResourceLink):
            yield f"[resource {block.uri}]" if not block.description else f"[resource {block.uri}: {block.description}]"
        elif not isinstance(block, EmbeddedResource):
            yield _file(block.type, block.data, block.mime_type, folder)
        elif isinstance(block.resource, TextResourceContents):
            yield block.resource.text
        else:
            yield _file("resource", block.resource.blob, block.resource.mime_type or "", folder)


def _file(kind: str, data: str, mime_type: str, folder: Path | None) -> str:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{kind} {mime_type}, which cannot be decoded]"
    label = f"{kind} {mime_type or 'of unknown type'}, {len(content)} bytes"
    if folder is None:
        return f"[{label}]"
    suffix = mimetypes.guess_extension(mime_type) or ".bin"
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return f"[{label}: {path}]"
