"""What holds for every reply, however damaged: each property is a function that raises where it does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from casebook import bare, feed, honest, in_order, tiled
from jsonschema import Draft202012Validator

from fuzz.arguments import CANARIES
from fuzz.inputs import ReplyInput
from promptools import dialects, parse
from promptools.parsing.events import Event, Reasoning, Text, WasReasoning, join
from promptools.parsing.parts import SPACE
from promptools.types import Call, ParseAttempt, Reply, Span

COST: Final = 12
"""Characters that the strategies may look at for each one of the text: its end may be read again 8 times."""


BY_CHARACTER: Final = 1_000
"""Characters up to which a text is fed by character, too."""


class Parsed:
    """One input, and what the parser made of it, read when it is first needed."""

    def __init__(self, given: ReplyInput) -> None:
        self.given = given

    def feed(self, pieces: list[str], finish_reason: str | None) -> tuple[list[Event], Reply]:
        """Feed pieces to a parser with the options of the input."""
        return feed(pieces, self.given.tools, finish_reason, **self.given.options)

    @cached_property
    def whole(self) -> tuple[list[Event], Reply]:
        """The events and the reply of the text in one piece."""
        return self.feed([self.given.text], self.given.finish_reason)

    @cached_property
    def in_pieces(self) -> list[tuple[list[Event], Reply]]:
        """The same of the text in pieces: as the input says, and by character."""
        ways = [self.given.pieces()]
        if len(self.given.text) <= BY_CHARACTER:
            ways.append(list(self.given.text))
        return [self.feed(pieces, self.given.finish_reason) for pieces in ways]

    @cached_property
    def expected(self) -> bool:
        """Whether the dialect of the text is the one that was asked for, and nothing else may be read in it."""
        wanted = {"expect": self.given.dialect}
        return self.given.options in (wanted, {**wanted, "dialect": self.given.dialect})


def tiles(parsed: Parsed) -> None:
    """Every character is in one place: content, reasoning, a call, a malformed one, or discarded."""
    events, reply = parsed.whole
    text = parsed.given.text
    tiled(events, text)
    taken_back = max((each.span.end for each in events if isinstance(each, WasReasoning)), default=0)
    content = [event.text for event in events if isinstance(event, Text) and event.span.end > taken_back]
    thought = [
        each.text for each in events
        if isinstance(each, Reasoning) or (isinstance(each, Text) and each.span.end <= taken_back)
    ]  # fmt: skip
    assert "".join(content) == reply.content, "the content is not the text that went out as content"
    thoughts = "".join(thought)
    thoughts = thoughts.lstrip(SPACE) if taken_back else thoughts
    assert sorted(thoughts) == sorted(reply.reasoning), "the reasoning is not what went out as reasoning"
    for call in reply.calls:
        assert text[call.span.start : call.span.end].strip(), f"the call {call.name!r} is made of nothing"


def consistent_events(parsed: Parsed) -> None:
    """The events are in order, agree with the reply, and the reply survives its JSON form."""
    events, reply = parsed.whole
    in_order(events, reply)
    honest(parsed.given.text, reply)


def same_as_parse(parsed: Parsed) -> None:
    """`parse` gives the same as a stream that comes in one piece, its trace too."""
    given = parsed.given
    assert parse(given.text, given.tools, finish_reason=given.finish_reason, **given.options) == parsed.whole[1]


def same_however_cut(parsed: Parsed) -> None:
    """Events, reply and fixes do not depend on where the pieces end."""
    whole, reply = parsed.whole
    for events, other in parsed.in_pieces:
        assert bare(other) == bare(reply), f"in pieces the reply is another: {_difference(other, reply)}"
        assert join(events) == join(whole), "in pieces the events are others"


def same_tries(parsed: Parsed) -> None:
    """What was tried does not depend on where the pieces end, what it cost and how far it looked aside."""
    for _, other in parsed.in_pieces:
        one, two = _tries(parsed.whole[1]), _tries(other)
        assert one == two, f"in pieces the tries are others: {set(one) ^ set(two)}"


def _tries(reply: Reply) -> list[ParseAttempt]:
    return [
        replace(attempt, cost=0, span=Span(attempt.span.start, attempt.span.start)) for attempt in reply.trace.tries
    ]


def _difference(one: Reply, other: Reply) -> str:
    first, second = one.to_dict(), other.to_dict()
    return ", ".join(
        f"{key}: {str(first[key])[:200]} / {str(second[key])[:200]}"
        for key in first
        if key != "trace" and first[key] != second[key]
    )


def fitting_calls(parsed: Parsed) -> None:
    """Each call is of an offered tool, or flagged, and its arguments fit the tool's schema."""
    given = parsed.given
    if given.tools is None:
        return
    offered = [tool.get("function", tool) for tool in given.tools]
    schemas = {tool["name"]: tool.get("parameters") or {} for tool in offered}
    for call in parsed.whole[1].calls:
        assert call.unknown_tool == (call.name not in schemas), f"{call.name!r} was offered, or not"
        wrong = list(Draft202012Validator(schemas.get(call.name, {})).iter_errors(call.arguments))
        assert not wrong, f"the arguments of {call.name!r} do not fit: {wrong[0].message[:200]}"
        assert _plain(call.arguments), "the arguments hold what is no JSON"


def _plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def faithful(parsed: Parsed) -> None:
    """A call without fixes, of a text that nobody damaged, is one that was written."""
    given = parsed.given
    if given.damage != "none" or not given.rendered or not parsed.expected:
        return
    written = [(name, json.dumps(arguments, sort_keys=True)) for name, arguments in given.rendered]
    for call in parsed.whole[1].calls:
        if not call.fixes:
            assert _said(call) in written, f"nobody wrote {call.name}({str(call.arguments)[:200]})"


def _said(call: Call) -> tuple[str, str]:
    return call.name, json.dumps(call.arguments, sort_keys=True)


def complete(parsed: Parsed) -> None:
    """Every call of a text that nobody damaged is read, in its order, where its names are ordinary ones."""
    given = parsed.given
    if "whole" not in given.mutations or not parsed.expected or given.finish_reason == "length":
        return
    found = [_said(call) for call in parsed.whole[1].calls]
    written = [(name, json.dumps(arguments, sort_keys=True)) for name, arguments in given.rendered]
    assert found == written, f"written were {written}, found {found}"


def cut_short(parsed: Parsed) -> None:
    """A text that was cut completes no call that the whole one does not hold, and shortens no value."""
    given = parsed.given
    if not given.rendered or given.damage != "none" or not parsed.expected:
        return
    written = [(name, arguments) for name, arguments in given.rendered]
    whole = [(call.name, call.arguments) for call in parsed.whole[1].calls]
    if [(name, _json(each)) for name, each in whole] != [(name, _json(each)) for name, each in written]:
        return
    for end in given.cuts:
        for reason in ("length", None, "stop"):
            calls = parsed.feed([given.text[:end]], reason)[1].calls
            found = [(call.name, call.arguments) for call in calls]
            assert len(found) <= len(whole), f"cut at {end} ({reason}) there are more calls"
            for one, other in zip(found, whole, strict=False):
                sound = one[0] == other[0] and (
                    _begins(one[1], other[1]) if reason == "stop" else _json(one[1]) == _json(other[1])
                )
                assert sound, f"cut at {end} ({reason}) {other} is {one}"


def cut_short_when_damaged(parsed: Parsed) -> None:
    """After `length`, a call that begins where one of the whole text does is the same call."""
    given = parsed.given
    whole = {call.span.start: call for call in parsed.whole[1].calls}
    for end in given.cuts:
        for call in parsed.feed([given.text[:end]], "length")[1].calls:
            other = whole.get(call.span.start)
            if other is not None and other.name == call.name:
                assert _begins(other.arguments, call.arguments), f"cut at {end} {other.arguments} is {call.arguments}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _begins(part: Any, whole: Any) -> bool:
    """Return whether `part` is `whole` without some of its last members: no value is shortened."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _begins(each, whole[key]) for key, each in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(_begins, part, whole))
    return type(part) is type(whole) and part == whole


def not_fused(parsed: Parsed) -> None:
    """No argument runs into the next call: it holds the words, and the markers, of one call alone."""
    given = parsed.given
    if given.damage == "any" or not given.rendered:
        return
    own = "\0".join(each for _, arguments in given.rendered for each in _strings(arguments))
    heads = [text for head in dialects.get(given.dialect).heads for text in head.literals if len(text) > 3]
    strange = [each for each in heads if each not in own]
    for call in parsed.whole[1].calls:
        for text in _strings(call.arguments):
            of = [canary for canary in CANARIES if canary in text]
            assert len(of) <= 1, f"{call.name!r} holds the words of two calls: {text[:200]!r}"
            inside = [marker for marker in strange if of and marker in text]
            assert not inside, f"{call.name!r} holds the marker {inside[0]!r}: {text[:200]!r}"


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def bounded_cost(parsed: Parsed) -> None:
    """The strategies look at each character a bounded number of times."""
    text = parsed.given.text
    looked = sum(attempt.cost for attempt in parsed.whole[1].trace.tries)
    assert looked <= COST * len(text) + 2_000, f"{looked} characters were looked at for {len(text)}"


ABOUT_THE_TEXT: Final = frozenset(
    each.__name__
    for each in (
        tiles, consistent_events, same_as_parse, same_however_cut, same_tries, fitting_calls, cut_short_when_damaged,
        bounded_cost,
    )
)  # fmt: skip
"""Properties of any text: one that fails may be made smaller. The others know what was written into it."""

PROPERTIES: Final[tuple[Callable[[Parsed], None], ...]] = (
    tiles, consistent_events, same_as_parse, same_however_cut, fitting_calls, faithful, complete, cut_short,
    cut_short_when_damaged, not_fused, bounded_cost, same_tries,
)  # fmt: skip
