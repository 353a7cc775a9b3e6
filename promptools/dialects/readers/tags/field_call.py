"""A call whose arguments come one by one between tags: emitted as they come, and decided at the end."""

from __future__ import annotations

from typing import Any

from promptools.dialects.calls.call_builder import CallBuilder
from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.calls.streaming.member_streamer import MemberStreamer
from promptools.parsing.parts import EarlyOutput
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed

_NAME = lazy_pattern(r"[^\W\d][\w.:/-]{0,127}\Z")
"""The name of a tool that nobody listed: text with spaces between two tags is not a name."""


class FieldCall(CallBuilder):
    """A call whose name comes after its opening tag."""

    def __init__(self, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(rules)
        self.place = place
        self._definite = definite
        self._streamer: MemberStreamer | None = None

    @property
    def meant(self) -> bool:
        """Whether a call is intended here, whatever tool it names."""
        return self.place.implies_call

    def set_name(self, name: str) -> bool:
        """Set the name, the longest declared one first; return whether this may be a call."""
        tools = self.rules.tools
        resolved = tools.find(name) if tools is not None and "<" not in name else None
        if resolved is None:
            self.name = name
            likely = tools is None or self.meant or self.place.wrapper_first
            return likely and _NAME.match(name) is not None
        self.tool, fix = resolved
        self.name = self.tool.name
        self.fixes += [fix] if fix is not None else []
        if self.meant and self._definite:
            self._streamer = MemberStreamer(self.rules, self.name)
            self._streamer.start()
        return True

    def take_early(self) -> list[EarlyOutput]:
        """Return what may be emitted, once."""
        early: list[EarlyOutput] = []
        if self._streamer is not None:
            early, self._streamer.pending = self._streamer.pending, early
        return early

    def may_be_tool_name(self, prefix: str) -> bool:
        """Return whether a name that was cut off may become that of a tool."""
        if self.rules.tools is None:
            return _NAME.match(prefix) is not None
        return any(name.startswith(prefix) or prefix.startswith(name) for name in self.rules.tools.all_names)

    def split_glued_key(self, text: str) -> tuple[str, str] | None:
        """Split a name from a key glued to it: the longest offered name whose rest is one of its keys, or None."""
        tools = self.rules.tools
        for name in sorted(tools.all_names if tools is not None else (), key=len, reverse=True):
            if text.startswith(name) and tools is not None and text[len(name) :].strip() in tools.keys(name):
                return name, text[len(name) :].strip()
        return None

    def put(self, key: str, value: Any, fixes: tuple[Fix, ...] = ()) -> None:
        """Add an argument whose value has been read, and stream it."""
        super().put(key, value, fixes)
        if self._streamer is not None:
            self._streamer.add(key, value)

    def resolve(self) -> Call | Malformed:
        """Build the call or its failure. Raise `NotACall` if it is not a call."""
        place = self.place
        if self.rules.strictness == "strict" and not self.meant and self._was_repaired():
            raise NotACall("strict allows no repair of the markup")
        if self.error:
            return self.as_malformed(self.error)
        if self.tool is None and not (self.meant or self.arguments) and self.rules.tools is not None:
            raise NotACall("a word alone is no call")
        outcome = self.resolve_in(place)
        return self._streamer.reconcile(outcome) if self._streamer is not None else outcome

    def as_truncated(self) -> Malformed:
        """Return a failure: the text ended inside the call."""
        return malformed_call("truncated", "the text ended inside it", self.place.dialect, self.name or None)

    def as_malformed(self, why: str) -> Malformed:
        """Return a failure: the call cannot be read."""
        return malformed_call("invalid_json", why, self.place.dialect, self.name or None)

    def _was_repaired(self) -> bool:
        return bool(self.error) or any(fix.kind != "name" for fix in self.fixes)
