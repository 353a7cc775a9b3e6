"""One Python call of a tool: its arguments as they come, what is certain of them, and the outcome."""

from __future__ import annotations

import json
from collections import Counter

from promptools.dialects.envelope import NoCall, Node, Said
from promptools.dialects.live import LiveArguments
from promptools.dialects.pycalls.arguments import Arguments
from promptools.dialects.pycalls.braces import Braces
from promptools.dialects.pycalls.names import plain, unescaped
from promptools.dialects.settle import Place, Rules, dump, settle
from promptools.dialects.values import STRING
from promptools.errors import clip
from promptools.parsing.parts import Fragment, Started
from promptools.schema.graph import is_object
from promptools.types import Call, Fix, Malformed


class OneCall:
    """A call whose name and opening bracket were read.

    `live`: what is certain may be emitted before its end. `braces`: its arguments are one of Gemma's objects.
    """

    def __init__(self, said: str, rules: Rules, place: Place, *, live: bool, braces: bool = False) -> None:
        self._renamed = unescaped(said)
        self._said = said = plain(said)
        self._rules = rules
        self._place = place
        resolved = rules.tools.find(said) if rules.tools is not None else None
        self.tool = resolved[0] if resolved is not None else None
        self._order: tuple[str, ...] | None = None
        if self.tool is not None:
            properties = self.tool.parameters.get("properties")
            self._order = tuple(properties) if is_object(properties) else ()
        self._arguments: Arguments | Braces
        if braces:
            keys = rules.tools.keys(self.tool.name) if rules.tools is not None and self.tool else frozenset[str]()
            self._arguments = Braces(keys, self._types, closed=place.sentinel)
        else:
            strings = frozenset(key for key in self._order or () if self._types(key) == STRING)
            self._arguments = Arguments(self._order, strings, calls=self._calls, escaped=bool(self._renamed))
        self._live = LiveArguments(rules, said) if live else None
        self._told = 0

    def _calls(self, name: str) -> bool:
        """Return whether a call may begin with this name."""
        return name == self._said or self._rules.tools is None or self._rules.tools.find(name) is not None

    def _types(self, key: str) -> frozenset[str]:
        assert self._rules.tools is not None
        assert self.tool is not None
        return self._rules.tools.types(self.tool.name, key)

    @property
    def name(self) -> str:
        """The tool's name, or the name as written if no tool has it."""
        return self.tool.name if self.tool is not None else self._said

    @property
    def at(self) -> int:
        """How far the current text has been taken."""
        return self._arguments.at

    @property
    def begun(self) -> bool:
        """Whether there is an argument, or the beginning of one."""
        return self._arguments.begun

    @property
    def last_quote(self) -> str:
        """The quote of the string that the arguments end in; empty if they do not end in one."""
        return self._arguments.last_quote if isinstance(self._arguments, Arguments) else ""

    @property
    def gives_value(self) -> bool:
        """Whether what comes next is a value, or more of one, of a key with `=`."""
        return isinstance(self._arguments, Arguments) and self._arguments.gives_value

    def feed(self, text: str, at: int, *, final: bool) -> bool:
        """Consume `text[at:]` up to `self.at`; return whether the closing bracket has come. Raise `Refused`."""
        return self._arguments.feed(text, at, final=final)

    def told(self, *, last: bool) -> list[Started | Fragment]:
        """Return what has become certain since the last time. `last`: the call has ended."""
        arguments = self._arguments
        text = ", ".join(arguments.members[self._told :])
        if self._live is None or arguments.given or not text:
            return []
        early = self._live.feed(f"{' ' if self._told else '{'}{text}{'}' if last else ','}", last=last)
        self._told = len(arguments.members)
        return early

    def complete(self) -> bool:
        """Supply the closing bracket if it alone is missing; return whether that was possible."""
        return self._arguments.begun and self._arguments.complete()

    def end_string(self) -> str | None:
        """Close a last string before the block's closing token; return what came after, or None if uncertain."""
        return self._arguments.end_string() if isinstance(self._arguments, Braces) else None

    def outcome(self, *more: Fix) -> Call | Malformed:
        """Resolve the call, with `more` fixes. Raise `NoCall` if it is not a call."""
        arguments = self._arguments
        text, given = self._object()
        value = json.loads(text)
        twice = [key for key, count in Counter(arguments.keys).items() if count > 1]
        duplicates = tuple(Fix("duplicate", f"key {clip(key, 60)!r} stands twice; the last one holds") for key in twice)
        node = Node(value, text, 0, len(text), exact=not twice)
        fixes = (*self._renamed, *arguments.liberties.fixes(), *given, *duplicates, *more)
        outcome = settle(Said(node, self._said, node, {}, fixes), self._rules, self._place)
        if isinstance(outcome, Malformed):
            self._refuse_strange(value)
            return outcome
        return self._live.settle(outcome) if self._live is not None else outcome

    def _refuse_strange(self, value: dict[str, object]) -> None:
        """Raise `NoCall` if none of the arguments is the tool's, and nothing but its name makes this a call."""
        sure = self._place.wrapped or self._place.expected
        tools = self._rules.tools
        if sure or self.tool is None or tools is None:
            return
        if tools.keys(self.tool.name).isdisjoint(value):
            raise NoCall("its arguments are none of the tool's")

    def _object(self) -> tuple[str, tuple[Fix, ...]]:
        """Return the arguments as one JSON object, those without a key in the tool's declared order, and the fixes."""
        given, members = self._arguments.given, self._arguments.members
        if not given:
            return f"{{{', '.join(members)}}}", ()
        order = self._order
        if len(given) == 1 and given[0][0] == "{" and not members:
            tools = self._rules.tools
            keys = tools.keys(self.tool.name) if self.tool is not None and tools is not None else None
            if not keys or keys.issuperset(json.loads(given[0])):
                return given[0], (Fix("unwrap", "the arguments were one object"),)
        if order is None or len(given) > len(order) or set(order[: len(given)]).intersection(self._arguments.keys):
            raise NoCall("an argument has no key")
        named = [f"{dump(key)}: {value}" for key, value in zip(order, given, strict=False)]
        fixes = tuple(Fix("infer", f"argument without a key taken as {key!r}") for key in order[: len(given)])
        return f"{{{', '.join((*named, *members))}}}", fixes
