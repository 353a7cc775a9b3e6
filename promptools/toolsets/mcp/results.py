"""Results of MCP tools as a model's tool results: text, and images."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mimetypes
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promptools.toolsets.tool_output import ToolOutput, image_part

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock


def result_output(result: CallToolResult, folder: Path | None, *, images: bool) -> ToolOutput:
    """Return a result: its texts, or else its structured content, and its images.

    Servers repeat the structured content as text, so it counts only where there is no text. Images and other files are
    named with type and size, and written to `folder` if there is one.
    """
    shown: list[dict[str, Any]] = []
    parts = list(_parts(result.content, folder, shown))
    has_text = any(block.type in {"text", "resource"} for block in result.content)
    if result.structured_content is not None and not has_text:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return ToolOutput("\n".join(parts) or "[the tool returned nothing]", tuple(shown) if images else ())


def _parts(content: list[ContentBlock], folder: Path | None, shown: list[dict[str, Any]]) -> Iterator[str]:
    """Yield texts, and names of files; add the images to `shown`."""
    from mcp.types import EmbeddedResource, ResourceLink, TextContent, TextResourceContents

    for block in content:
        if isinstance(block, TextContent):
            yield block.text
        elif isinstance(block, ResourceLink):
            yield f"[resource {block.uri}]" if not block.description else f"[resource {block.uri}: {block.description}]"
        elif not isinstance(block, EmbeddedResource):
            yield _file(block.type, block.data, block.mime_type, folder, shown)
        elif isinstance(block.resource, TextResourceContents):
            yield block.resource.text
        else:
            yield _file("resource", block.resource.blob, block.resource.mime_type or "", folder, shown)


def _file(kind: str, data: str, mime_type: str, folder: Path | None, shown: list[dict[str, Any]]) -> str:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{kind} {mime_type}, which cannot be decoded]"
    if (part := image_part(content, mime_type)) is not None:
        shown.append(part)
    label = f"{kind} {mime_type or 'of unknown type'}, {len(content)} bytes"
    if folder is None:
        return f"[{label}]"
    suffix = mimetypes.guess_extension(mime_type) or ".bin"
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return f"[{label}: {path}]"
