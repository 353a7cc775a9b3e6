"""Escape markup in text that the app did not write: user messages, results, tools, and the model's replies to them.

None of it may become a control token or a marker of the conversation: see docs/why/foreign-text.md. System messages are
the app's own and stay as they are. The model copies escaped text into its arguments, so the escaped forms that were
written, and no others, are unescaped in the calls that answer the request.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from promptools.dialects.markers import NONE, markers
from promptools.modes.names import mapped
from promptools.parsing.escape import markup
from promptools.profiles import Profile, all_control_tokens
from promptools.profiles.facts import SHAPES
from promptools.schema import Tools
from promptools.types import Fix
from promptools.wire.shapes import as_object, is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from promptools.dialects.markers import Markers
    from promptools.modes.ask import Ask
    from promptools.modes.history import Turn
    from promptools.parsing.escape import Markup
    from promptools.types import Call

NO_NAMES: Mapping[str, str] = MappingProxyType({})
NOTHING = markup(frozenset[str]())


def foreign_to(ask: Ask, *, dialect: str | None) -> Foreign:
    """Return the escaper for a request; `dialect` is that of prompt mode, None is native mode.

    In native mode the server's template writes calls and results: of a known family, in the dialect of its profile.
    """
    if not ask.options.escape:
        return Foreign(NOTHING, NOTHING)
    known = ask.profile.control_tokens
    control = all_control_tokens() if known is None else frozenset(known)
    own: Markers = NONE
    if dialect is not None:
        own = markers(dialect)
    elif ask.profile.family is not None:
        own = markers(ask.profile.dialect)._replace(labels=frozenset())
    return Foreign(markup(control | own.tokens, own.labels), markup(control - own.tokens - {*SHAPES}))


@dataclass(slots=True)
class Foreign:
    """Escape the foreign text of one request, and record the escaped forms."""

    markup: Markup
    said: Markup
    """The markup to escape in the model's own text of an earlier attempt: less, since its calls must stay calls."""
    forms: set[str] = field(default_factory=set[str])
    places: Counter[str] = field(default_factory=Counter[str])
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tools sent under another name, since their own contains markup."""
    _place: str = ""

    # --- the request -------------------------------------------------------------------------------------------------

    def turns(self, turns: Iterable[Turn], again: int = 0) -> list[Turn]:
        """Escape a conversation whose last `again` messages are feedback of earlier attempts. O(n) in its size."""
        every = list(turns)
        return [self._turn(turn, at, own=at >= len(every) - again) for at, turn in enumerate(every)]

    def tools(self, tools: list[Any]) -> list[Any]:
        """Escape tools, except for their names and types; return the same list where nothing needs it."""
        if not self.markup.may_be_in(json.dumps(tools, ensure_ascii=False)):
            return tools
        self._place = "the tools"
        return [self._tool(tool) if is_object(tool) else tool for tool in tools]

    def prepared(self, tools: Tools) -> Tools:
        """Escape tools that are rendered into the prompt."""
        return Tools(self.tools(tools.to_openai())) if _may_hold(tools, self.markup) else tools

    def names(self, names: Iterable[str], sent: Mapping[str, str] = NO_NAMES) -> Mapping[str, str]:
        """Map the tool names that contain markup to others; names in `sent` keep their replacement."""
        every = list(names)
        if any(map(self.markup.found, every)):
            others = mapped(every, Profile().tool_names).items()
            self.renamed = {name: sent.get(name, other) for name, other in others if self.markup.found(name)}
        return self.renamed

    def text(self, text: str) -> str:
        """Escape a text of a conversation that is rendered here."""
        self._place = "the conversation"
        return self._text(text)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was escaped and where, for the trace."""
        if not self.places:
            return ()
        count = self.places.total()
        things = "control tokens and markers" if count > 1 else "control token or marker"
        where = ", ".join(self.places)
        return (f"escaped: {count} {things} in {where}",)

    def _turn(self, turn: Turn, at: int, *, own: bool) -> Turn:
        if turn.role == "system":
            return turn
        self._place = f"message {at}"
        text_markup = self.said if own and turn.role == "assistant" else self.markup
        message = {
            key: self._content(value, text_markup) if key == "content" else self._field(key, value, text_markup)
            for key, value in turn.message.items()
        }
        calls = tuple(map(self._call, turn.calls))
        result = turn.result
        if result is not None:
            counted = self.places.copy()
            content, name = self._text(result.content), self._name(result.name)
            result = replace(result, call_id=self._text(result.call_id), name=name, content=content)
            self.places = counted  # it repeats the message's content
        return replace(turn, message=message, calls=calls, result=result)

    def _field(self, key: str, value: Any, words: Markup) -> Any:
        """Escape another field of a message than its content: a template may write any, such as `tool_plan`."""
        if key == "tool_calls" and is_list(value):
            return [self._around_call(call, words) if is_object(call) else call for call in value]
        return value if key in _READ else self._value(value, words)

    def _around_call(self, given: dict[str, Any], words: Markup) -> dict[str, Any]:
        """Escape the fields of a call that are not parsed here."""
        return {key: value if key in _READ_OF_CALLS else self._value(value, words) for key, value in given.items()}

    def _part(self, part: Any, words: Markup) -> Any:
        """Escape the fields of a part other than its text; images and sound are not text."""
        if not is_object(part):
            return part
        return {
            key: value if key == "text" or key in _MEDIA else self._value(value, words) for key, value in part.items()
        }

    def _call(self, call: Call) -> Call:
        arguments = self._value(call.arguments)
        call = replace(call, id=self._text(call.id), name=self._name(call.name))
        if arguments is call.arguments:
            return call
        return replace(call, arguments=arguments, arguments_json=json.dumps(arguments, ensure_ascii=False))

    def _name(self, name: str) -> str:
        return self.renamed[name] if name in self.renamed else self._text(name)

    def _content(self, content: Any, words: Markup) -> Any:
        if isinstance(content, str):
            return self._text(content, words)
        if not is_list(content):
            return self._value(content, words)
        content = [self._part(part, words) for part in content]
        texts = [_text_of(part) for part in content]
        escaped = words.escape_parts([text for text in texts if text is not None], self._wrote)
        rest = iter(escaped)
        return [
            part if text is None else _with_text(part, next(rest)) for part, text in zip(content, texts, strict=True)
        ]

    def _text(self, text: str, words: Markup | None = None) -> str:
        return (words or self.markup).escape(text, self._wrote)

    def _value(self, value: Any, words: Markup | None = None) -> Any:
        return rewrite(value, (words or self.markup).found, lambda text: self._text(text, words))

    def _tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        """Escape a tool; a `pattern` with markup is dropped, since escaping would change its meaning."""
        plain = {key: value for key, value in tool.items() if key not in _KEPT}
        function = as_object(plain.pop("function", None))
        changed = {**tool, **self._value(plain)}
        if function:
            inner = {key: value for key, value in function.items() if key not in _KEPT}
            schema = without_patterns(inner, self.markup.found)
            changed["function"] = {**function, **self._value(schema)}
        return changed

    def _wrote(self, form: str) -> None:
        self.forms.add(form)
        self.places[self._place] += 1

    # --- the reply ---------------------------------------------------------------------------------------------------

    @property
    def restore(self) -> Restore | None:
        """The inverse, for the arguments of calls; None where nothing was escaped."""
        return Restore(self.markup, frozenset(self.forms)) if self.forms else None


_READ = frozenset(("role", "content", "tool_calls", "function_call"))
"""Fields of a message that are parsed and encoded again."""
_READ_OF_CALLS = frozenset(("id", "index", "type", "function", "custom"))
_MEDIA = frozenset(("image_url", "input_audio", "audio_url", "video_url"))
_KEPT = frozenset(("name", "type"))


@dataclass(frozen=True, slots=True)
class Restore:
    """Unescape the arguments of a call: the forms that were written in the request, and no others."""

    markup: Markup
    forms: frozenset[str]

    def __call__(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], tuple[Fix, ...]]:
        """Return the unescaped arguments, and a fix for each form."""
        undone: dict[str, None] = {}

        def text_of(text: str) -> str:
            return self.markup.unescape(text, self.forms, undone.setdefault)

        restored = rewrite(arguments, self.markup.found, text_of)
        return (restored if undone else arguments), tuple(
            Fix("escape", f"{form!r} to {form[0] + form[2:]!r}") for form in undone
        )


@lru_cache(maxsize=64)
def _may_hold(tools: Tools, words: Markup) -> bool:
    return words.may_be_in(json.dumps(tools.to_openai(), ensure_ascii=False))


# --- values ----------------------------------------------------------------------------------------------------------


def rewrite(value: Any, found: Callable[[str], bool], change: Callable[[str], str]) -> Any:
    """Copy JSON of any depth with every string and key changed; return the same object where none is `found`. O(n)."""
    if not any(map(found, _strings(value))):
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
            elif is_list(item):
                container[key] = list(item)
                containers.append(container[key])
    return top[0]


def without_patterns(value: dict[str, Any], found: Callable[[str], bool]) -> dict[str, Any]:
    """Copy a schema without each `pattern` for which `found` is true."""
    top = {"": value}
    containers: list[Any] = [top]
    while containers:
        container = containers.pop()
        for key, item in list(_items(container)):
            if key == "pattern" and isinstance(item, str) and found(item):
                del container[key]
            elif is_object(item) or is_list(item):
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
        elif is_list(item):
            rest += item


def _text_of(part: Any) -> str | None:
    return part if isinstance(part, str) else text if isinstance(text := as_object(part).get("text"), str) else None


def _with_text(part: Any, text: str) -> Any:
    return text if isinstance(part, str) else part if part["text"] == text else {**part, "text": text}
