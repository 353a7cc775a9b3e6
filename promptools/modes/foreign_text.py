r"""Escape markup in text that the app did not write: user messages, results, tools, and the model's own replies.

None of this text may become a control token or a marker of the conversation: see docs/why/foreign-text.md. System
messages come from the app and are not escaped. The model copies escaped text into the arguments of calls, so these
arguments are unescaped. Only the escaped forms (such as `<\|im_end|>`) that the request contained are replaced.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from promptools.dialects.written_markup import NO_MARKUP, written_markup
from promptools.json_values import is_array, is_object, write_json
from promptools.modes.history import Turn
from promptools.modes.tool_names import legal_names
from promptools.parsing.escape import markup_escaper
from promptools.profiles import Profile, all_control_tokens
from promptools.profiles.facts import CONTROL_TOKEN_FORMS
from promptools.schema import Tools
from promptools.types import Fix
from promptools.wire.json_body import as_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from promptools.dialects.written_markup import WrittenMarkup
    from promptools.modes.tool_request import ToolRequest
    from promptools.parsing.escape import MarkupEscaper
    from promptools.types import Call


NO_NAMES: Mapping[str, str] = MappingProxyType({})
NO_ESCAPES = markup_escaper(frozenset[str]())


def foreign_escaper(request: ToolRequest, *, dialect: str | None) -> ForeignEscaper:
    """Return the object that escapes markup in a request.

    `dialect` is the dialect of prompt mode, or None in native mode.

    In native mode the server's template writes calls and results. If the template's dialect is known, the calls and
    results are assumed to be in that dialect. If only the model's family is known, the profile's dialect is assumed.
    """
    if not request.options.escape:
        return ForeignEscaper(NO_ESCAPES, NO_ESCAPES)
    own: WrittenMarkup = NO_MARKUP
    if dialect is not None:
        own = written_markup(dialect, request.tools.names)
    elif request.profile.template_dialect is not None or request.profile.family is not None:
        written = request.profile.template_dialect or request.profile.dialect
        own = written_markup(written, request.tools.names)._replace(labels=frozenset())
    return ForeignEscaper(*_escapers(request.profile.control_tokens, own))


@lru_cache(maxsize=64)
def _escapers(known: tuple[str, ...] | None, own: WrittenMarkup) -> tuple[MarkupEscaper, MarkupEscaper]:
    """Return the escapers for text that others wrote, and for the model's own replies.

    `known` holds the control tokens in the profile, or is None if they are unknown.
    """
    control = all_control_tokens() if known is None else frozenset(known)
    return (
        markup_escaper(control | own.tokens, own.labels),
        markup_escaper(control - own.tokens - {*CONTROL_TOKEN_FORMS}),
    )


@dataclass(slots=True)
class ForeignEscaper:
    """Escapes markup in those texts of one request that the app did not write, and records the escaped forms."""

    markup: MarkupEscaper
    own_markup: MarkupEscaper
    """Escapes control tokens in the model's replies to earlier attempts, but leaves the markup of calls as it is."""
    forms: set[str] = field(default_factory=set[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Maps tool names that contain markup to new names without markup."""
    _location: str = ""

    # --- the request -------------------------------------------------------------------------------------------------

    def escape_turns(self, turns: Iterable[Turn], feedback_count: int = 0) -> list[Turn]:
        """Escape a conversation whose last `feedback_count` messages are feedback on earlier attempts. O(n)."""
        every = list(turns)
        return [self._escape_turn(turn, at, own=at >= len(every) - feedback_count) for at, turn in enumerate(every)]

    def escape_tools(self, tools: list[Any], unchanged: Tools | None = None) -> list[Any]:
        """Escape tools, except for their names and types; return the same list if nothing needs escaping.

        If `tools` holds the unchanged payloads of a `Tools` object, that object may be passed as `unchanged`, because
        it can be searched faster than the list.
        """
        if unchanged is not None:
            marked = _may_contain(unchanged, self.markup)
        else:
            marked = self.markup.may_be_in_json(write_json(tools, "the parameters of a tool"))
        if not marked:
            return tools
        self._location = "the tools"
        return [self._escape_tool(tool) if is_object(tool) else tool for tool in tools]

    def escape_prepared(self, tools: Tools) -> Tools:
        """Escape the markup in prepared tools, for tools that are rendered into the prompt."""
        return Tools(self.escape_tools(tools.to_openai())) if _may_contain(tools, self.markup) else tools

    def rename_marked(self, names: Iterable[str], sent: Mapping[str, str] = NO_NAMES) -> Mapping[str, str]:
        """Map each tool name that contains markup to a name without markup.

        If `sent` already maps such a name to a new name, that new name is used.
        """
        every = list(names)
        if self.markup.is_in("\n".join(every)):
            others = legal_names(every, Profile().tool_names).items()
            self.renamed = {name: sent.get(name, other) for name, other in others if self.markup.is_in(name)}
        return self.renamed

    def escape_text(self, text: str) -> str:
        """Escape markup in a text of the conversation, for a prompt that promptools itself renders."""
        self._location = "the conversation"
        return self._escape_text(text)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the trace on what was escaped and where."""
        if not self.counts:
            return ()
        count = self.counts.total()
        things = "control tokens and markers" if count > 1 else "control token or marker"
        where = ", ".join(self.counts)
        return (f"escaped: {count} {things} in {where}",)

    def _escape_turn(self, turn: Turn, position: int, *, own: bool) -> Turn:
        if turn.role == "system":
            return turn
        self._location = f"message {position}"
        text_markup = self.own_markup if own and turn.role == "assistant" else self.markup
        message = {
            key: self._escape_content(value, text_markup)
            if key == "content"
            else self._escape_field(key, value, text_markup)
            for key, value in turn.message.items()
        }
        calls = tuple(map(self._escape_call, turn.calls))
        result = turn.result
        if result is not None:
            counted = self.counts.copy()
            content, name = self._escape_text(result.content), self._escape_name(result.name)
            result = replace(result, call_id=self._escape_text(result.call_id), name=name, content=content)
            self.counts = counted  # the result repeats the message's content, which is counted already
        return Turn(message, calls, result, turn.attachments)

    def _escape_field(self, key: str, value: Any, text_markup: MarkupEscaper) -> Any:
        """Escape a message field that is not the content.

        Unknown fields are escaped too, because templates write fields such as `tool_plan` into the prompt. Fields in
        `_PARSED_FIELDS` are left as they are, except for unknown fields of the calls in `tool_calls`.
        """
        if key == "tool_calls" and is_array(value):
            return [self._escape_call_fields(call, text_markup) if is_object(call) else call for call in value]
        return value if key in _PARSED_FIELDS else self._escape_value(value, text_markup)

    def _escape_call_fields(self, raw_call: dict[str, Any], text_markup: MarkupEscaper) -> dict[str, Any]:
        """Escape those fields of a past call that a `Call` object does not contain."""
        return {
            key: value if key in _PARSED_CALL_FIELDS else self._escape_value(value, text_markup)
            for key, value in raw_call.items()
        }

    def _escape_part(self, part: Any, text_markup: MarkupEscaper) -> Any:
        """Escape all fields of a content part except text, images, sound and video."""
        if not is_object(part):
            return part
        return {
            key: value if key == "text" or key in _MEDIA else self._escape_value(value, text_markup)
            for key, value in part.items()
        }

    def _escape_call(self, call: Call) -> Call:
        arguments = self._escape_value(call.arguments)
        call = replace(call, id=self._escape_text(call.id), name=self._escape_name(call.name))
        if arguments is call.arguments:
            return call
        return replace(call, arguments=arguments, arguments_json=write_json(arguments, "the arguments of a past call"))

    def _escape_name(self, name: str) -> str:
        return self.renamed[name] if name in self.renamed else self._escape_text(name)

    def _escape_content(self, content: Any, text_markup: MarkupEscaper) -> Any:
        if isinstance(content, str):
            return self._escape_text(content, text_markup)
        if not is_array(content):
            return self._escape_value(content, text_markup)
        content = [self._escape_part(part, text_markup) for part in content]
        texts = [_text_of(part) for part in content]
        escaped = text_markup.escape_parts([text for text in texts if text is not None], self._record)
        rest = iter(escaped)
        return [
            part if text is None else _with_text(part, next(rest)) for part, text in zip(content, texts, strict=True)
        ]

    def _escape_text(self, text: str, text_markup: MarkupEscaper | None = None) -> str:
        return (text_markup or self.markup).escape(text, self._record)

    def _escape_value(self, value: Any, text_markup: MarkupEscaper | None = None) -> Any:
        return map_strings(value, (text_markup or self.markup).is_in, lambda text: self._escape_text(text, text_markup))

    def _escape_tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        """Escape a tool; a `pattern` with markup is dropped, since escaping would change its meaning."""
        plain = {key: value for key, value in tool.items() if key not in _UNESCAPED_KEYS}
        function = as_object(plain.pop("function", None))
        changed = {**tool, **self._escape_value(plain)}
        if function:
            inner = {key: value for key, value in function.items() if key not in _UNESCAPED_KEYS}
            schema = without_patterns(inner, self.markup.is_in)
            changed["function"] = {**function, **self._escape_value(schema)}
        return changed

    def _record(self, form: str) -> None:
        self.forms.add(form)
        self.counts[self._location] += 1

    # --- the reply ---------------------------------------------------------------------------------------------------

    @property
    def restore(self) -> Unescaper | None:
        """The `Unescaper` for the arguments of calls in the reply; None if nothing was escaped."""
        return Unescaper(self.markup, frozenset(self.forms)) if self.forms else None


_PARSED_FIELDS = frozenset(("role", "content", "tool_calls", "function_call"))
"""Fields of a message that are parsed and encoded again."""
_PARSED_CALL_FIELDS = frozenset(("id", "index", "type", "function", "custom"))
_MEDIA = frozenset(("image_url", "input_audio", "audio_url", "video_url"))
_UNESCAPED_KEYS = frozenset(("name", "type"))


@dataclass(frozen=True, slots=True)
class Unescaper:
    """Unescapes the arguments of a call, but only the escaped forms that the request contained."""

    markup: MarkupEscaper
    forms: frozenset[str]

    def __call__(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], tuple[Fix, ...]]:
        """Return the unescaped arguments, and a fix for each escaped form that was replaced."""
        undone: dict[str, None] = {}

        def text_of(text: str) -> str:
            return self.markup.unescape(text, self.forms, undone.setdefault)

        restored = map_strings(arguments, self.markup.is_in, text_of)
        return (restored if undone else arguments), tuple(
            Fix("escape", f"{form!r} to {form[0] + form[2:]!r}") for form in undone
        )


@lru_cache(maxsize=64)
def _may_contain(tools: Tools, text_markup: MarkupEscaper) -> bool:
    return text_markup.may_be_in_json(tools.json_text)


# --- values ----------------------------------------------------------------------------------------------------------


def map_strings(value: Any, matches: Callable[[str], bool], change: Callable[[str], str]) -> Any:
    """Copy JSON of any depth, with `change` applied to each string and key. O(n).

    If `matches` is false for all strings and keys, return the value itself.
    """
    if not any(map(matches, _strings(value))):
        return value
    top: list[Any] = [value]
    containers: list[Any] = [top]
    while containers:
        container = containers.pop()
        for key, item in list(_items(container)):
            if isinstance(item, str):
                container[key] = change(item)
            elif is_object(item):
                container[key] = {change(name): inner for name, inner in item.items()}
                containers.append(container[key])
            elif is_array(item):
                container[key] = list(item)
                containers.append(container[key])
    return top[0]


def without_patterns(value: dict[str, Any], matches: Callable[[str], bool]) -> dict[str, Any]:
    """Copy a schema without those of its `pattern` keywords for which `matches` is true."""
    top = {"": value}
    containers: list[Any] = [top]
    while containers:
        container = containers.pop()
        for key, item in list(_items(container)):
            if key == "pattern" and isinstance(item, str) and matches(item):
                del container[key]
            elif is_object(item) or is_array(item):
                container[key] = item.copy()
                containers.append(container[key])
    return top[""]


def _items(container: Any) -> Iterator[tuple[Any, Any]]:
    yield from container.items() if is_object(container) else enumerate(container)


def _strings(value: Any) -> Iterator[str]:
    rest: list[Any] = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            yield item
        elif is_object(item):
            rest += item
            rest += item.values()
        elif is_array(item):
            rest += item


def _text_of(part: Any) -> str | None:
    return part if isinstance(part, str) else text if isinstance(text := as_object(part).get("text"), str) else None


def _with_text(part: Any, text: str) -> Any:
    return text if isinstance(part, str) else part if part["text"] == text else {**part, "text": text}
