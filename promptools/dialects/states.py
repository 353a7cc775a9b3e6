"""List what each tag does in the calls that a dialect writes: the state of the reader before and after the tag.

The list is recorded while the dialect's reader reads sample calls. If a call contains any other tag, the reader repairs
the call and records a fix, reports the call as malformed, or treats the tag as text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.readers.tag_reader import TagReader, Transition
from promptools.dialects.sample import CALL, TOOL
from promptools.patterns import lazy_pattern
from promptools.types import Call

if TYPE_CHECKING:
    from promptools.dialects.contract import Dialect, Head

OUTSIDE: Final = "outside"
"""The name of the state before a call's first tag, for readers that begin after this tag."""
_PING: Final[dict[str, Any]] = {"name": "ping", "description": "Answer pong.", "parameters": {"type": "object"}}
_PINGED: Final = Call("call00002", "ping", {}, "{}")
_SLOTS: Final = {CALL.name: "{name}", _PINGED.name: "{name}", **dict.fromkeys(CALL.arguments, "{key}")}
_SAMPLE_WORD: Final = lazy_pattern("|".join(_SLOTS))


def states(dialect: Dialect) -> tuple[Transition, ...]:
    """Return what each tag does in the calls that a dialect writes; empty if its calls are not read as tags."""
    found: dict[Transition, None] = {}
    for calls in ([CALL], [_PINGED], [CALL, _PINGED]):
        text = dialect.render_calls(calls).lstrip()
        opened = _open_reader(dialect, text)
        if opened is None:
            return ()
        reader, head, rest = opened
        if head:
            found[_row(Transition(OUTSIDE, head, reader.state))] = None
        found |= dict.fromkeys(map(_row, reader.transitions(rest)))
    return tuple(found)


def _row(seen: Transition) -> Transition:
    """Return a transition with placeholders for the words of the sample calls, such as `{name}` for `get_weather`."""
    tag = _SAMPLE_WORD.sub(lambda match: _SLOTS[match[0]], "".join(seen.tag.split("\n")))
    return seen._replace(tag=tag)


def _open_reader(dialect: Dialect, text: str) -> tuple[TagReader, str, str] | None:
    """Return the reader of the first call in a text, the text that begins the call, and the rest of the text.

    Return None if the reader does not read tags.
    """
    from promptools.schema import Tools

    options = ParseOptions(Tools([TOOL, _PING]), "balanced", dialect.name, json_answer=False, anchors=frozenset())
    evidence = Evidence(dialect.name, wrapped=False, expected=True)
    for head in dialect.heads:
        end = _head_end(head, text, options)
        if end:
            at = end if head.body_starts else 0
            reader = dialect.candidate(text[:at], options, evidence, definite=False)
            return (reader, text[:at], text[at:]) if isinstance(reader, TagReader) else None
    return None


def _head_end(head: Head, text: str, options: ParseOptions) -> int:
    """Return the length of the text that begins a call if `text` begins with such text, as `head` describes; else 0."""
    match = re.match(head.pattern, text)
    if match is None:
        return 0
    if head.begins is not None:
        begins = head.begins(text, 0, match.end(), fresh=True, options=options) is True
    else:
        begins = text[match.end() : match.end() + 1] in tuple(head.body_starts)
    return match.end() if begins else 0
