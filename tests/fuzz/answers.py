"""What holds for every answer of a server: the client gets a sound one, and no word of the model is lost."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import ValidationError
from scripted import JSON, SSE, Answer, Seen, play

from fuzz.upstream import ExchangeInput

SENDS: Final = 12
"""Sends of one request after which it counts as one without end."""


class Answered:
    """One input, and what the client got."""

    def __init__(self, given: ExchangeInput) -> None:
        self.given = given

    def play(self, cut: int) -> Seen:
        """Run the exchange; the server answers every send alike, in pieces of `cut` bytes."""
        headers = SSE if self.given.type == "text/event-stream" else JSON
        body = self.given.answer.encode("utf-8", "surrogateescape" if _bytes(self.given.answer) else "surrogatepass")
        return play(self.given.body, [Answer(200, body, headers, cut) for _ in range(SENDS)], spare=True)

    @cached_property
    def seen(self) -> Seen:
        """What the client and the server saw, with the pieces of the input."""
        return self.play(self.given.cut)


def _bytes(text: str) -> bool:
    return all(not "\ud800" <= char <= "\udfff" or "\udc80" <= char <= "\udcff" for char in text)


NO_REQUEST = (
    "'messages' must",
    "messages[",
    "'tools' must be a list",
    "'functions' must be a list",
    "tool_choice",
    "'n' is",
    "promptools",
    "'promptools'",
)
"""What an error of ours may be about: a body that is no Chat Completions request, or our own options; never a tool."""


def answered(got: Answered) -> None:
    """There is an answer with a status, whatever came; an error of ours says what is wrong with server or request."""
    seen = got.seen
    assert seen.head is not None, "no answer was given"
    allowed = (200, 400) if got.given.odd_request else (200, 502)
    assert seen.head.status in allowed, f"the answer is HTTP {seen.head.status}: {seen.body[:200]!r}"
    if seen.head.status == 400:
        said = seen.json["error"]["message"]
        assert said.startswith(NO_REQUEST), f"what a server may take was refused: {said}"
    assert len(seen.sent) < SENDS, "the server was asked again and again"


FORWARDED = frozenset({"audio", "annotations"})
"""Fields of a message that go on as the server sent them."""


def sound(got: Answered) -> None:
    """What the client gets is what the SDK reads, usage aside, with arguments that are JSON objects."""
    seen = got.seen
    if seen.head is None or seen.head.status != 200 or got.given.odd_request:
        return
    if got.given.body["stream"]:
        failed = [each for each in seen.events if "error" in each]
        for event in seen.events:
            if "error" not in event:
                _read(ChatCompletionChunk, event)
        assert seen.done != bool(failed), "a stream ends with [DONE], or with an error"
        choice = seen.choice()
        assert failed or len(choice.finish) == 1, f"the finish reasons are {choice.finish}"
        calls = [] if failed else [each["arguments"] for each in choice.calls.values()]
        if choice.finish == ["length"]:  # the last call may have been cut off
            calls = calls[:-1]
    else:
        _read(ChatCompletion, seen.json)
        calls = [call["function"]["arguments"] for call in seen.message.get("tool_calls") or ()]
    if got.given.body["promptools"].get("on_malformed") != "call":
        for arguments in calls:
            assert isinstance(json.loads(arguments), dict), f"the arguments are {arguments[:200]!r}"


def _read(kind: type[ChatCompletion | ChatCompletionChunk], body: dict[str, Any]) -> None:
    """Read a body as the SDK's type; usage, the finish reason and what is unknown here are the server's own words."""
    choices = [{**choice, "finish_reason": "stop"} for choice in body["choices"]]
    for choice, key in itertools.product(choices, ("message", "delta")):
        if key in choice:
            choice[key] = {name: value for name, value in choice[key].items() if name not in FORWARDED}
    try:
        kind.model_validate({**body, "usage": None, "choices": choices})
    except ValidationError as error:
        raise AssertionError(f"no {kind.__name__}: {error}") from error


def no_word_lost(got: Answered) -> None:
    """What the model said and thought reaches the client, or stands in the error."""
    for word in got.given.words:
        assert word in _said(got.seen), f"{word!r} is lost: {got.seen.body[-300:]!r}"


def _said(seen: Seen) -> str:
    if seen.body.startswith(b"{"):
        return seen.body.decode()
    choice = seen.choice()
    return choice.content + choice.reasoning + "".join(call["arguments"] for call in choice.calls.values())


def same_pieces(got: Answered) -> None:
    """It does not matter in which pieces the answer comes."""
    for cut in () if got.given.odd_request else (1, 0):
        if cut != got.given.cut and len(got.given.answer) < 20_000:
            other = got.play(cut)
            assert _all(other) == _all(got.seen), f"in pieces of {cut}: {_all(other)} / {_all(got.seen)}"


def _all(seen: Seen) -> Any:
    if not seen.body.startswith(b"data"):
        return seen.head and seen.head.status, seen.body
    if any("error" in event for event in seen.events):
        return "failed"  # what went out before it is as much as had come
    choice = seen.choice()
    return choice.content, choice.reasoning, choice.finish, [list(call.values()) for call in choice.calls.values()]


PROPERTIES: Final[tuple[Callable[[Answered], None], ...]] = (answered, sound, no_word_lost, same_pieces)
