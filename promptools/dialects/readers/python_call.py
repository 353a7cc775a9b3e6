"""Read a single Python call: parse its arguments, stream those that can no longer change, and find the called tool."""

from __future__ import annotations

import json
from collections import Counter

from promptools.dialects.calls.bare_values import STRING_ONLY
from promptools.dialects.calls.call_streamer import ArgumentStreamer
from promptools.dialects.calls.envelope import JsonNode, NotACall, UnresolvedCall
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import resolve_call
from promptools.dialects.readers.gemma_object import GemmaObject
from promptools.dialects.readers.python_arguments import PythonArguments
from promptools.errors import clip
from promptools.json_values import is_object
from promptools.jsontext.text import dump
from promptools.parsing.parts import EarlyArguments, EarlyCallStart
from promptools.schema.spelling import escape_fixes, unescape_name
from promptools.types import Call, Fix, Malformed


class PythonCall:
    """Reads the arguments of a call whose name and opening bracket have been read.

    `streams`: whether parts of the call that can no longer change may be emitted before the call ends. `gemma`: whether
    the arguments are an object in Gemma's format. `all_quoted`: whether string delimiters enclose all values of that
    object.
    """

    def __init__(
        self,
        name: str,
        options: ParseOptions,
        evidence: Evidence,
        *,
        streams: bool,
        gemma: bool = False,
        all_quoted: bool = False,
    ) -> None:
        self._name_fixes = escape_fixes(name)
        self._written_name = name = unescape_name(name)
        self._options = options
        self._evidence = evidence
        resolved = options.tools.find(name) if options.tools is not None else None
        self.tool = resolved[0] if resolved is not None else None
        self._parameters: tuple[str, ...] | None = None
        if self.tool is not None:
            properties = self.tool.parameters.get("properties")
            self._parameters = tuple(properties) if is_object(properties) else ()
        self._arguments: PythonArguments | GemmaObject
        if gemma:
            keys = options.tools.keys(self.tool.name) if options.tools is not None and self.tool else frozenset[str]()
            self._arguments = GemmaObject(keys, self._types, token_closes=evidence.sentinel, all_quoted=all_quoted)
        else:
            strings = frozenset(key for key in self._parameters or () if self._types(key) == STRING_ONLY)
            self._arguments = PythonArguments(
                self._parameters, strings, is_tool=self._is_tool, markdown_escaped=bool(self._name_fixes)
            )
        self._streamer = ArgumentStreamer(options, name) if streams else None
        self._streamed_count = 0

    def _is_tool(self, name: str) -> bool:
        """Return whether a call to a tool may begin with this name; always True if the tools are unknown."""
        return name == self._written_name or self._options.tools is None or self._options.tools.find(name) is not None

    def _types(self, key: str) -> frozenset[str]:
        assert self._options.tools is not None
        assert self.tool is not None
        return self._options.tools.types(self.tool.name, key)

    @property
    def name(self) -> str:
        """The tool's name, or the name as the model wrote it if no tool has that name."""
        return self.tool.name if self.tool is not None else self._written_name

    @property
    def at(self) -> int:
        """The offset up to which the current text has been consumed."""
        return self._arguments.at

    @property
    def has_arguments(self) -> bool:
        """Whether there is an argument, or the beginning of one."""
        return self._arguments.has_arguments

    @property
    def last_quote(self) -> str:
        """The quote of the string with which the arguments end; empty if they do not end in a string."""
        return self._arguments.last_quote if isinstance(self._arguments, PythonArguments) else ""

    @property
    def expects_value(self) -> bool:
        """Whether a key with `=` has been read, and its value is missing or may continue."""
        return isinstance(self._arguments, PythonArguments) and self._arguments.expects_value

    def feed(self, text: str, at: int, *, final: bool) -> bool:
        """Consume `text` from `at` on; return whether the closing bracket has arrived.

        Afterward, `at` is the offset up to which the text has been consumed. Raises `LiteralError` for unreadable text.
        """
        return self._arguments.feed(text, at, final=final)

    def stream(self, *, last: bool) -> list[EarlyCallStart | EarlyArguments]:
        """Return the call's new output that no later text can change. `last`: whether the call has ended."""
        arguments = self._arguments
        text = ", ".join(arguments.members[self._streamed_count :])
        if self._streamer is None or arguments.positional or not text:
            return []
        early = self._streamer.feed(f"{' ' if self._streamed_count else '{'}{text}{'}' if last else ','}", last=last)
        self._streamed_count = len(arguments.members)
        return early

    def close_missing_bracket(self) -> bool:
        """Add the missing closing bracket, if nothing else is missing; return whether it was added."""
        return self._arguments.has_arguments and self._arguments.close_missing_bracket()

    def end_string(self) -> str | None:
        """Close the open string before the block's closing token; return the text from that token on.

        Return None if no string is open, or its end is uncertain.
        """
        return self._arguments.end_string() if isinstance(self._arguments, GemmaObject) else None

    def resolve(self, *more: Fix) -> Call | Malformed:
        """Resolve the call, and record `more` as additional fixes. Raises `NotACall` if the text is not a call."""
        arguments = self._arguments
        text, given = self._as_object()
        value = json.loads(text)
        twice = [key for key, count in Counter(arguments.keys).items() if count > 1]
        duplicates = tuple(Fix("duplicate", f"key {clip(key, 60)!r} came twice: the last one counts") for key in twice)
        node = JsonNode(value, text, 0, len(text), exact=not twice)
        fixes = (*self._name_fixes, *arguments.fix_log.fixes(), *given, *duplicates, *more)
        outcome = resolve_call(UnresolvedCall(node, self._written_name, node, {}, fixes), self._options, self._evidence)
        if isinstance(outcome, Malformed):
            self._reject_foreign(value)
            return outcome
        return self._streamer.reconcile(outcome) if self._streamer is not None else outcome

    def _reject_foreign(self, value: dict[str, object]) -> None:
        """Raise `NotACall` if the tool declares none of the arguments, and only the tool's name suggests a call."""
        sure = self._evidence.wrapped or self._evidence.expected
        tools = self._options.tools
        if sure or self.tool is None or tools is None:
            return
        if tools.keys(self.tool.name).isdisjoint(value):
            raise NotACall("its arguments are none of the tool's")

    def _as_object(self) -> tuple[str, tuple[Fix, ...]]:
        """Return the arguments as a JSON object, and the fixes.

        Arguments without a key get the names of the tool's parameters as keys, in declared order. But if the only
        argument is a dictionary whose keys fit the tool, the dictionary is the whole object. Raises `NotACall` if an
        argument cannot get a key.
        """
        given, members = self._arguments.positional, self._arguments.members
        if not given:
            return f"{{{', '.join(members)}}}", ()
        order = self._parameters
        if len(given) == 1 and given[0][0] == "{" and not members:
            tools = self._options.tools
            keys = tools.keys(self.tool.name) if self.tool is not None and tools is not None else None
            if not keys or keys.issuperset(json.loads(given[0])):
                return given[0], (Fix("unwrap", "the arguments were one object"),)
        if order is None or len(given) > len(order) or set(order[: len(given)]).intersection(self._arguments.keys):
            raise NotACall("an argument has no key")
        named = [f"{dump(key)}: {value}" for key, value in zip(order, given, strict=False)]
        fixes = tuple(Fix("infer", f"argument without a key taken as {key!r}") for key in order[: len(given)])
        return f"{{{', '.join((*named, *members))}}}", fixes
