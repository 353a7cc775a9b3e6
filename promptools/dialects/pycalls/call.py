"""One Python call of a tool: its arguments as they come, what is certain of them, and what becomes of it."""

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

    `live`: what is certain may go out before its end. `braces`: its arguments are an object of Gemma's.
    """

    def __init__(self, said: str, rules: Rules, place: Place, *, live: bool, braces: bool = False) -> None:
        self._renamed = unescaped(said)
        self._said = said = plain(said)
        self._rules = rules
        self._place = place
        found = rules.tools.find(said) if rules.tools is not None else None
        self.tool = found[0] if found is not None else None
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
        """Whether a call may begin with this name."""
        return name == self._said or self._rules.tools is None or self._rules.tools.find(name) is not None

    def _types(self, key: str) -> frozenset[str]:
        assert self._rules.tools is not None
        assert self.tool is not None
        return self._rules.tools.types(self.tool.name, key)

    @property
    def name(self) -> str:
        """Give the tool's name, or what was said where none has it."""
        return self.tool.name if self.tool is not None else self._said

    @property
    def at(self) -> int:
        """How far the text at hand has been taken."""
        return self._arguments.at

    @property
    def begun(self) -> bool:
        """Tell whether there is an argument, or the beginning of one."""
        return self._arguments.begun

    @property
    def last_quote(self) -> str:
        """The character around the string that the arguments end in; empty where they end in none."""
        return self._arguments.last_quote if isinstance(self._arguments, Arguments) else ""

    @property
    def gives_value(self) -> bool:
        """Tell whether what comes next is a value, or more of one, that is given to a key by `=`."""
        return isinstance(self._arguments, Arguments) and self._arguments.gives_value

    def feed(self, text: str, at: int, *, final: bool) -> bool:
        """Take `text[at:]` up to `self.at`; tell whether the closing bracket has come. Raises `Refused`."""
        return self._arguments.feed(text, at, final=final)

    def told(self, *, last: bool) -> list[Started | Fragment]:
        """Give what has become certain since the last time. `last`: the call has ended."""
        arguments = self._arguments
        said = ", ".join(arguments.members[self._told :])
        if self._live is None or arguments.given or not said:
            return []
        found = self._live.feed(f"{' ' if self._told else '{'}{said}{'}' if last else ','}", last=last)
        self._told = len(arguments.members)
        return found

    def complete(self) -> bool:
        """Supply the closing bracket, if it alone is missing; tell whether that could be done."""
        return self._arguments.begun and self._arguments.complete()

    def end_string(self) -> str | None:
        """Close a last string before the closer of the block; return what came after, or None: its end is in doubt."""
        return self._arguments.end_string() if isinstance(self._arguments, Braces) else None

    def outcome(self, *more: Fix) -> Call | Malformed:
        """Settle the call. Raises `NoCall`."""
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
        """Raise `NoCall` for arguments that are none of the tool's, where nothing but its name tells of a call."""
        sure = self._place.wrapped or self._place.expected
        tools = self._rules.tools
        if sure or self.tool is None or tools is None:
            return
        if tools.keys(self.tool.name).isdisjoint(value):
            raise NoCall("its arguments are none of the tool's")

    def _object(self) -> tuple[str, tuple[Fix, ...]]:
        """Give the arguments as one JSON object: those without a key in the order in which the tool declares them."""
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
