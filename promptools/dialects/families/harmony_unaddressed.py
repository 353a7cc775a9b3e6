"""JSON that begins a message for the user which addresses no tool, before words: arguments of a call that names nobody.

    <|channel|>commentary <|constrain|>json<|message|>{"city": "Oslo"}<|call|>It is sunny.

gpt-oss leaves the recipient out, and where `<|call|>` does not stop it, goes on. Nobody can tell which tool was meant.
Before words the JSON is left out, so that the user does not read it glued to them. Alone it is content: it may be all
that the model had to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import read_calls
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.jsontext.brackets import BracketScanner
from promptools.jsontext.strict import read_members
from promptools.parsing.parts import Content, MessageStart, Outside, Segment
from promptools.types import Fix

_FIX = Fix("marker", "harmony: JSON that addresses no tool was left out before words")


class UnaddressedJson:
    """Passes segments on, and holds such JSON until what follows it shows whether it is left out. O(n)."""

    def __init__(self, rules: ParseOptions) -> None:
        self._rules = rules
        self._held: list[Segment] = []
        """The JSON, with all that follows it."""
        self._scanner: BracketScanner | None = None
        """Follows the JSON until it is closed."""
        self._may_begin = False
        """A message for the user has just begun."""

    def filter(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        """Yield the segments that are certain."""
        for segment in segments:
            if self._scanner is not None:
                yield from self._in_json(segment, self._scanner)
            elif self._held:
                yield from self._after_json(segment)
            elif self._may_begin and isinstance(segment, Content):
                yield from self._first_content(segment)
            else:
                self._may_begin = _is_commentary(segment)
                yield segment

    def close(self) -> Iterator[Segment]:
        """Yield what is held: no words followed it."""
        held, self._held, self._scanner = self._held, [], None
        yield from held

    def _first_content(self, segment: Content) -> Iterator[Segment]:
        bare = segment.raw.lstrip()
        self._may_begin = not bare
        if not bare.startswith("{"):
            yield segment
            return
        if len(bare) < len(segment.raw):
            yield Content(segment.raw[: -len(bare)])
        self._scanner = BracketScanner()
        yield from self._in_json(Content(bare), self._scanner)

    def _in_json(self, segment: Segment, scanner: BracketScanner) -> Iterator[Segment]:
        end = scanner.feed(segment.raw) if isinstance(segment, Content) else None
        if isinstance(segment, Content) and end is None:
            self._held.append(segment)
            return
        self._held.append(Content(segment.raw[:end]) if end is not None else segment)
        text = "".join(held.raw for held in self._held if isinstance(held, Content))
        if end is None or not self._names_no_tool(text):
            yield from self.close()
            if end is not None and end < len(segment.raw):
                yield Content(segment.raw[end:])
            return
        self._held, self._scanner = [Content(text)], None
        if end < len(segment.raw):
            yield from self._after_json(Content(segment.raw[end:]))

    def _after_json(self, segment: Segment) -> Iterator[Segment]:
        words = isinstance(segment, Content) or (isinstance(segment, Outside) and segment.kind == "words")
        if words and segment.raw.strip() and not segment.raw.lstrip().startswith("{"):
            yield from self._leave_out(segment)
        elif (words and segment.raw.strip()) or (isinstance(segment, MessageStart) and segment.kind != "words"):
            yield from self.close()
            yield segment
        else:
            self._held.append(segment)

    def _leave_out(self, words: Segment) -> Iterator[Segment]:
        """Yield what is held with the JSON left out, and then the words that follow it."""
        found, *rest = self._held
        self._held = []
        yield Outside("debris", found.raw, (_FIX,))
        bare = words.raw.lstrip()
        space = words.raw[: -len(bare)]
        for held in (*rest, Content(space)) if space else rest:
            yield Outside("space", held.raw) if isinstance(held, Content) else held
        yield words._replace(raw=bare)

    def _names_no_tool(self, text: str) -> bool:
        """Whether a text is an object, and not one that is a whole call itself, with a name."""
        _, _, end = read_members(text)
        if end != len(text):
            return False
        try:
            read_calls(text, self._rules, Evidence("harmony", wrapped=False, expected=False))
        except NotACall:
            return True
        return False


def _is_commentary(segment: Segment) -> bool:
    """Whether a message begins that is for the user, and no answer."""
    return isinstance(segment, MessageStart) and segment.kind == "words" and not (segment.final or segment.ambiguous)
