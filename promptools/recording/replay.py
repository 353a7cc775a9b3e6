"""Replay: read recorded rows again, and compare the new results with the recorded results."""

from __future__ import annotations

import difflib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import promptools
from promptools.errors import UsageError, clip
from promptools.exchange.attempt import final_finish_reason
from promptools.json_values import is_array, is_object
from promptools.modes.foreign_text import Unescaper
from promptools.modes.options import Options
from promptools.modes.prepared_request import PreparedRequest
from promptools.modes.reply_reader import ReplyReader
from promptools.modes.tool_request import ToolChoice, ToolRequest
from promptools.modes.verdict import judge_reply
from promptools.parsing.description import describe_reply
from promptools.parsing.escape import markup_escaper
from promptools.profiles import Profile
from promptools.schema import Tools
from promptools.types import Call, Reply
from promptools.wire.chat_decoder import Delta, ToolDelta
from promptools.wire.raw_endpoints import RawPrompt

# Read a recorded row. As with a live exchange, the mode's reader reads its replies, and they are judged.


FORMAT = 1
"""The version of the row format."""


def read_row(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the replies of a recorded row, and return one result for each.

    Raises `UsageError` for a row that cannot be read.
    """
    if row.get("format") != FORMAT:
        raise UsageError(f"the form of the row is {row.get('format')!r}; this version reads form {FORMAT}")
    try:
        request, prepared = decode_request(row), decode_prepared(row)
        return [read_reply(request, prepared, row, reply) for reply in row["replies"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the row is not complete: {type(error).__name__}: {error}") from None


def read_reply(
    request: ToolRequest, prepared: PreparedRequest, row: Mapping[str, Any], reply: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the result of reading one reply: its verdict, such as `answered`, and all non-empty parts of the reply."""
    return describe_reply(*parse_reply(request, prepared, row, reply))


def parse_reply(
    request: ToolRequest, prepared: PreparedRequest, row: Mapping[str, Any], reply: Mapping[str, Any]
) -> tuple[Reply, str]:
    """Parse a recorded reply; return it with the kind of its verdict or, for a failed attempt, the recorded failure."""
    numbers = count()
    reader = ReplyReader(request, prepared, lambda: f"call{next(numbers)}")
    for delta in decode_pieces(reply):
        reader.feed(delta)
    reader.close(final_finish_reason(reply.get("finish_reason"), reader, request, ended=row["ended"]))
    verdict = judge_reply(
        request,
        reader.reply,
        raw=reader.raw,
        stop_reason=reply.get("stop_reason"),
        usage=row.get("usage"),
        mode=row["mode"],
        names=prepared.client_names,
    )
    return reader.reply, row.get("failed") or verdict.kind


# --- the parts of a row ----------------------------------------------------------------------------------------------


def decode_request(row: Mapping[str, Any]) -> ToolRequest:
    """Return the request of a row.

    Its messages are the recorded messages or, without them, the recorded passages that the replies quote from them.
    """
    data: dict[str, Any] = row["request"]
    tools = Tools(data.get("tools", [])).with_marks(data.get("marks", {}))
    names = data.get("offered")
    kept = [tool for tool in tools.to_openai() if names is None or tool["function"]["name"] in names]
    quotes = [{"role": "user", "content": quote} for quote in data.get("quotes", [])]
    body = {
        "model": row["model"],
        "messages": data.get("messages", quotes),
        "max_tokens": data.get("max_tokens"),
        "response_format": data.get("response_format"),
    }
    return ToolRequest(
        body=body,
        tools=tools,
        offered=tools if names is None else Tools(kept).with_marks(data.get("marks", {})),
        other_tools=tuple(data.get("other_tools", ())),
        choice=ToolChoice(*data.get("tool_choice", ("auto", None))),
        parallel_calls=data.get("parallel_tool_calls", True),
        stream=data["stream"],
        profile=replace(Profile(), **_tuples(row.get("profile", {}))),
        options=Options().override(row.get("options"), "options"),
        json_answer=data.get("json_answer", False),
        legacy=data.get("legacy", False),
    )


def decode_prepared(row: Mapping[str, Any]) -> PreparedRequest:
    """Return the prepared request of a row, with the parts that are needed to read its reply."""
    data: dict[str, Any] = row.get("prepared", {})
    forms = frozenset[str](data.get("escaped", ()))
    tokens = frozenset(form[0] + form[1:].lstrip("\\") for form in forms)
    vocabulary = {int(token): bytes.fromhex(text) for token, text in row.get("tokens", {}).items()}
    return PreparedRequest(
        body={},
        client_names=data.get("names", {}),
        dialect=data.get("dialect"),
        prompt=RawPrompt("", 0, decode=vocabulary.__getitem__) if vocabulary else None,
        prefill=data.get("prefill", ""),
        restore=Unescaper(markup_escaper(tokens), forms) if forms else None,
        in_reasoning=data.get("in_reasoning"),
        turn_ends=tuple(data.get("turn_ends", ())),
        examples=tuple(Call("", example["name"], example["arguments"], "") for example in data.get("examples", ())),
    )


def decode_pieces(reply: Mapping[str, Any]) -> list[Delta]:
    """Return the recorded pieces of a reply as deltas, in the form in which a live reply arrives."""
    deltas: list[Delta] = []
    for piece in reply["pieces"]:
        call = ToolDelta(**piece["call"]) if "call" in piece else None
        deltas.append(
            Delta(
                content=piece.get("content", ""),
                ids=tuple(piece["ids"]) if "ids" in piece else None,
                reasoning=piece.get("reasoning", ""),
                tool_calls=(call,) if call else (),
                stop_reason=reply.get("stop_reason"),
            )
        )
    return deltas


def _tuples(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile's facts from JSON, with lists converted to tuples."""
    return {key: tuple(value) if is_array(value) else value for key, value in facts.items()}


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """A row of a recording file: one attempt and its replies."""

    path: Path
    line: int
    """The number of the line, counted from 1."""
    data: Mapping[str, Any] = field(repr=False)

    @property
    def id(self) -> str:
        """The name of the file and the line, as in `20260101-120000-77.jsonl:3`."""
        return f"{self.path.name}:{self.line}"

    @property
    def expected(self) -> list[dict[str, Any]]:
        """The recorded result for each reply of the row."""
        return list(self.data["expected"])

    def read(self) -> list[dict[str, Any]]:
        """Return the results of reading the row now. Raises `UsageError` for a row that this version cannot read."""
        return read_row(self.data)

    def difference(self) -> str:
        """Return a unified diff between the recorded and the new results; empty if they are equal."""
        before, after = self.expected, self.read()
        if before == after:
            return ""
        lines = difflib.unified_diff(_lines(before), _lines(after), "recorded", "now", lineterm="")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A line that is not a valid row."""

    path: Path
    line: int
    reason: str


def read_rows(path: str | os.PathLike[str]) -> Iterator[RecordedRow | BrokenRow]:
    """Yield the rows of a file, or of all `*.jsonl` files of a directory in the order of their names.

    A line that is not a valid row is yielded as a `BrokenRow`. Raises `UsageError` if the path does not exist, or the
    directory has no such file.
    """
    for file in _files(Path(path)):
        for number, line in enumerate(_read(file).split(b"\n"), 1):
            if line.strip():
                yield _parse(file, number, line)


def update(path: Path) -> int:
    """Read the rows of a file again, and store the new results in them; return the number of rows that changed.

    All other lines are kept as they are.
    """
    changed = 0
    lines: list[bytes] = []
    for number, line in enumerate(_read(path).split(b"\n"), 1):
        row = _parse(path, number, line) if line.strip() else None
        after = _updated(row) if isinstance(row, RecordedRow) else None
        changed += after is not None
        lines.append(line if after is None else after)
    _replace(path, b"\n".join(lines))
    return changed


def _updated(row: RecordedRow) -> bytes | None:
    """Return the new line for a row whose results have changed; None if they are the same, or the row is unreadable."""
    try:
        expected = row.read()
    except UsageError:
        return None
    if expected == row.expected:
        return None
    data = {**row.data, "promptools": promptools.__version__, "expected": expected}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _replace(path: Path, content: bytes) -> None:
    """Replace a file's content atomically, so that nothing is lost if writing fails."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).chmod(path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"there is no file or directory {str(path)!r}")
    files = sorted(path.glob("*.jsonl"))
    if not files:
        raise UsageError(f"{str(path)!r} holds no recording: no file there ends in .jsonl")
    return files


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _parse(path: Path, number: int, line: bytes) -> RecordedRow | BrokenRow:
    try:
        data = json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        return BrokenRow(path, number, f"no JSON: {clip(str(error))}")
    if not (is_object(data) and is_array(data.get("expected")) and is_array(data.get("replies"))):
        return BrokenRow(path, number, "no recorded reply: it lacks `replies` or `expected`")
    return RecordedRow(path, number, data)


def _lines(value: Any) -> list[str]:
    return json.dumps(value, ensure_ascii=False, indent=2).splitlines()
