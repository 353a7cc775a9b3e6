"""The columns of results, each schema in one place, and the rows of them.

What has no fixed shape, the arguments of a call and the body of a response, is JSON as a string. Lists are never null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from promptools.batch.columns.arrow_package import arrow
from promptools.errors import clip
from promptools.types import Fix, Reply

KEYS = ("id", "custom_id")
"""Columns of a reply that are copied into its result."""


def batch_schema() -> Any:
    """Return the Arrow schema of the results of a batch."""
    pa = arrow()
    response = [("status_code", pa.int32()), ("request_id", pa.string()), ("body", pa.string())]
    return pa.schema([
        ("id", pa.string()),
        ("custom_id", pa.string()),
        ("response", pa.struct(response)),
        ("error", pa.struct([("code", pa.string()), ("message", pa.string())])),
    ])  # fmt: skip


def reparsed_schema() -> Any:
    """Return the Arrow schema of what is read of replies: the columns that `reparse_columns` adds."""
    pa = arrow()
    text = pa.string()
    fixes = pa.list_(pa.struct([("kind", text), ("detail", text), ("path", text)]))
    call = pa.struct([("name", text), ("arguments", text), ("dialect", text), ("fixes", fixes)])
    malformed = pa.struct([("name", text), ("reason", text), ("dialect", text)])
    return pa.schema([
        ("calls", pa.list_(call)),
        ("malformed", pa.list_(malformed)),
        ("content", text),
        ("reasoning", text),
        ("fixes", fixes),
        ("error", pa.struct([("line", pa.int64()), ("message", text)])),
    ])  # fmt: skip


def reparsed_file_schema() -> Any:
    """Return the Arrow schema of a file of reparsed replies: with the ids, which are strings."""
    pa = arrow()
    return pa.schema([*((key, pa.string()) for key in KEYS), *reparsed_schema()])


def batch_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result of a batch as a row."""
    response, error = result.get("response"), result.get("error")
    if response is not None:
        response = {**response, "body": json.dumps(response["body"])}
    if error is not None:
        error = {**error, "message": escape_surrogates(error["message"])}
    return {"id": result["id"], "custom_id": result["custom_id"], "response": response, "error": error}


def reparsed_row(reply: Reply) -> dict[str, Any]:
    """Return what was read of a reply as a row."""
    return {
        "calls": [
            {
                "name": call.name,
                "arguments": escape_surrogates(call.arguments_json),  # which are escapes of JSON
                "dialect": call.dialect,
                "fixes": _fix_rows(call.fixes),
            }
            for call in reply.calls
        ],
        "malformed": [
            {"name": malformed.name, "reason": malformed.reason, "dialect": malformed.dialect}
            for malformed in reply.malformed
        ],
        "content": reply.content or None,
        "reasoning": reply.reasoning or None,
        "fixes": _fix_rows(reply.fixes),
        "error": None,
    }


def failed_row(line: int, error: Exception) -> dict[str, Any]:
    """Return the row of a reply that cannot be read."""
    message = escape_surrogates(clip(str(error)))
    return {
        "calls": [],
        "malformed": [],
        "content": None,
        "reasoning": None,
        "fixes": [],
        "error": {"line": line, "message": message},
    }


def key_columns(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids of a row as strings: any other value as its JSON."""
    values = {key: row[key] for key in KEYS if row.get(key) is not None}
    return {
        key: escape_surrogates(value) if isinstance(value, str) else json.dumps(value) for key, value in values.items()
    }


def encode_row(row: Mapping[str, Any]) -> bytes:
    """Return a row as JSON; raise `UnicodeEncodeError` for a text that UTF-8, and so Arrow, cannot express."""
    return json.dumps(row, ensure_ascii=False).encode()


def escape_surrogates(text: str) -> str:
    r"""Return a text that UTF-8 can express, with surrogates without a partner as `\udxxx`."""
    return text.encode("utf-8", "backslashreplace").decode()


def _fix_rows(fixes: Iterable[Fix]) -> list[dict[str, Any]]:
    return [fix.to_dict() for fix in fixes]
