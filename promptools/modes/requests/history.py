"""The conversation as turns: past calls with readable arguments, results matched to their calls.

Histories come from every kind of client: calls without ids, ids used twice, arguments cut off or encoded as objects,
results that name no call. One broken message would make a server refuse the conversation for good.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from promptools.json_values import is_object, write_json
from promptools.jsontext.read import Unreadable, read_value
from promptools.parsing.reply_record import ID_LENGTH
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result
from promptools.wire.json_types import as_list, as_object, as_text
from promptools.wire.message_content import split_content

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NOT_QUOTABLE = frozenset(("assistant", "system", "developer"))
"""Roles whose text is not quotable: the model may repeat its own calls, and an app shows it how to call."""
_OTHER_ROLES = {"developer": "system", "function": "tool"}
_ALNUM9 = lazy_pattern(rf"[0-9A-Za-z]{{{ID_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. An assistant's has `calls`; a tool's has its text in `result`, its other parts in `attachments`."""

    message: dict[str, Any]
    calls: tuple[Call, ...] = ()
    result: Result | None = None
    attachments: tuple[dict[str, Any], ...] = ()

    @property
    def role(self) -> str:
        """The role, with `developer` as `system` (its older name) and `function` as `tool` (its newer one)."""
        role = as_text(self.message.get("role"))
        return _OTHER_ROLES.get(role, role)


@dataclass(slots=True)
class _PendingCalls:
    """The calls that await results while a history is read in order."""

    names: dict[str, str] = field(default_factory=dict[str, str])
    pending: list[Call] = field(default_factory=list[Call])

    def add(self, calls: Sequence[Call]) -> None:
        self.pending = list(calls)
        self.names.update((call.id, call.name) for call in calls)

    def match_result(self, call_id: str, name: str) -> tuple[str, str]:
        """Return the id and name of the call that a result belongs to: by id, else by name, else the first pending."""
        call = next((pending for pending in self.pending if pending.id == call_id), None)
        if call is None and call_id in self.names:
            return call_id, name or self.names[call_id]
        if call is None:
            call = next((pending for pending in self.pending if pending.name == name), None)
        if call is None and not call_id:
            call = next(iter(self.pending), None)
        if call is None:
            return call_id, name
        self.pending.remove(call)
        return call.id, name or call.name


def parse_history(messages: Iterable[Mapping[str, Any]]) -> tuple[list[Turn], tuple[str, ...]]:
    """Parse messages into turns; also return notes on what was repaired. O(n) in the size of the conversation."""
    turns: list[Turn] = []
    notes: list[str] = []
    links = _PendingCalls()
    for position, message in enumerate(messages):
        turn = Turn(dict(message))
        if turn.role == "assistant":
            calls = _calls(message, position, notes)
            if calls:
                links.add(calls)
            turn = replace(turn, calls=calls)
        elif turn.role == "tool":
            text, images = split_content(message.get("content"))
            call_id, name = links.match_result(as_text(message.get("tool_call_id")), as_text(message.get("name")))
            turn = replace(turn, result=Result(call_id, name, text, is_error=_is_error(message)), attachments=images)
        turns.append(turn)
    return turns, tuple(notes)


def quotable_texts(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the texts that the model may quote: user messages and tool results. O(n) in their size."""
    for message in messages:
        if as_text(message.get("role")) not in _NOT_QUOTABLE:
            yield split_content(message.get("content"))[0]


def _is_error(message: Mapping[str, Any]) -> bool:
    """Whether a client flags a result as an error; Chat Completions has no such field, and its text proves nothing."""
    return message.get("is_error") is True or message.get("isError") is True or message.get("status") == "error"


def _calls(message: Mapping[str, Any], position: int, notes: list[str]) -> tuple[Call, ...]:
    raw_calls = [call for call in as_list(message.get("tool_calls")) if is_object(call)]
    legacy = message.get("function_call")
    if not raw_calls and is_object(legacy):
        raw_calls = [{"function": legacy}]
    calls: list[Call] = []
    seen: set[str] = set()
    for number, call in enumerate(raw_calls):
        function = as_object(call.get("function")) or as_object(call.get("custom"))
        call_id = as_text(call.get("id"))
        if not call_id or call_id in seen:
            call_id = alnum9_id(f"{position}.{number}")
        seen.add(call_id)
        name = as_text(function.get("name"))
        calls.append(_call(call_id, name, function.get("arguments", function.get("input")), notes))
    return tuple(calls)


def _call(call_id: str, name: str, arguments: Any, notes: list[str]) -> Call:
    """Parse a past call; unreadable arguments become `{}`, since servers refuse a history with broken JSON."""
    if is_object(arguments):
        return Call(call_id, name, arguments, _dump(arguments))
    text = as_text(arguments)
    if not text.strip():
        return Call(call_id, name, {}, "{}")
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        value = None
    if is_object(value):
        return Call(call_id, name, value, text)
    try:
        value = read_value(text, supply_closers=True).value
    except Unreadable:
        value = None
    repaired = value if is_object(value) else {}
    how = "mended" if repaired else "sent as {}"
    notes.append(f"history: the arguments of a past call of {name!r} are no JSON object and were {how}")
    return Call(call_id, name, repaired, _dump(repaired))


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _dump(value: Any) -> str:
    return write_json(value, "the arguments of a past call")


def alnum9_id(call_id: str) -> str:
    """Return `call_id` if it is nine alphanumerics, else nine derived from its hash (vllm#9019)."""
    if _ALNUM9.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    letters: list[str] = []
    for _ in range(ID_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return "".join(letters)
