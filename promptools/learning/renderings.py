"""Render conversations that differ from each other in one respect, and find the calls in the renderings.

A template is code that anyone may have written. It may reject a conversation, drop a part of it, or write arguments
differently depending on whether they are an object or text. A rejected conversation is not an error; it only means that
this variant is not available.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from promptools.dialects.reply_markers import reply_markers
from promptools.json_values import copy_json
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern

Renderer: TypeAlias = Callable[..., str]
"""`render(messages, tools, **options)` returns the prompt for a conversation in the form of Chat Completions.

The options are those of chat templates, such as `add_generation_prompt`. The function may raise any exception.
"""

MAX_RENDERING: Final = 2**18
"""Maximum length of a rendering. This module's conversations need 2,000 characters, but a template may write more."""
QUESTION: Final = "Zqu asks?"
ANSWER: Final = "Zqanswer"
RESULT: Final = "Zqresult"
NEXT: Final = "Zqu goes on?"
DONE: Final = "Zqdone"

Message: TypeAlias = dict[str, Any]

_TOKEN = lazy_pattern(
    r"<[^<>\s][^<>\n]{0,120}>"  # <|call|>, </tool_call>, <function=name>
    r"|\[{1,3}[/|]?[A-Za-z_|/]{2,60}\]{1,3}"  # [TOOL_CALLS], [[call]]
    r"|\({2,3}[^()\s]{1,60}\){2,3}"  # ((call))
    r"|[⟦【«「『《〈⟪][^\s⟧】»」』》〉⟫]{1,60}[⟧】»」』》〉⟫]"
    r"|(?P<mark>[@#%$§✿~^!*=+|]{1,3})/?\w{1,60}(?P=mark)"  # @@call@@, ✿FUNCTION✿
)
"""Matches a text that looks like a marker and therefore must not be split. Markers of other forms may be split."""


class CallOf(NamedTuple):
    """A call to render: its id, its tool and its arguments."""

    id: str
    name: str
    arguments: dict[str, Any]


class Variant(NamedTuple):
    """A way to put calls into a conversation. There are several, because templates accept different forms."""

    as_text: bool
    """Whether the arguments are JSON text, as in Chat Completions.

    If not, they are an object, as servers pass them to templates.
    """
    content: str | None
    """The `content` of the message with the calls: an empty string or null."""
    follow: Literal["", "user", "answer"] = ""
    """What follows the message with the calls: nothing, a user message, or an answer and then a user message.

    Some servers treat an assistant message at the end of a conversation as the beginning of a reply. Mistral's
    templates want an answer before the next user message.
    """


_FOLLOWS: Final[tuple[Literal["", "user", "answer"], ...]] = ("", "user", "answer")
VARIANTS: Final = tuple(
    Variant(as_text, content, follow) for as_text in (False, True) for follow in _FOLLOWS for content in ("", None)
)


@dataclass(frozen=True)
class Frame:
    """The texts before and after the calls in a rendering. They are the same whatever the calls are."""

    before: str
    after: str

    def calls_in(self, rendering: str) -> str | None:
        """Return the calls: the text between `before` and `after`. Return None if the rendering lacks either text."""
        if not rendering.startswith(self.before) or not rendering.endswith(self.after):
            return None
        end = len(rendering) - len(self.after)
        return rendering[len(self.before) : end] if end >= len(self.before) else None


class Renderings:
    """The renderings of one template, all with the same tools."""

    def __init__(self, render: Renderer, tools: Sequence[Mapping[str, Any]], special_tokens: Iterable[str]) -> None:
        self._render = render
        self._tools = tools
        self._known: dict[str, str | None] = {}
        self.special_tokens = frozenset(filter(None, special_tokens))
        self.count = 0
        self.refusal = ""
        """The reason for the template's latest rejection of a conversation; empty if it has rejected none."""

    def render(self, messages: Sequence[Message], *, prompt: bool = False, tools: bool = True) -> str | None:
        """Return the rendering of the user's question and `messages`; None if the template rejects the conversation.

        Each conversation is rendered only once, since a server needs time for each rendering.
        """
        key = dump([messages, prompt, tools])
        if key not in self._known:
            self._known[key] = self._rendered(messages, prompt=prompt, tools=tools)
        return self._known[key]

    def _rendered(self, messages: Sequence[Message], *, prompt: bool, tools: bool) -> str | None:
        self.count += 1
        user: Message = {"role": "user", "content": QUESTION}
        offered = [*self._tools] if tools else None
        try:
            text = self._render(copy_json([user, *messages]), copy_json(offered), add_generation_prompt=prompt)
        except Exception as error:  # noqa: BLE001 - a template is code of others, which may raise anything
            self.refusal = str(error)
            return None
        if not isinstance(text, str) or len(text) > MAX_RENDERING:
            self.refusal = "the rendering is too long, or no text"
            return None
        return text

    def of_calls(self, calls: Sequence[CallOf], variant: Variant, **more: Any) -> str | None:
        """Return the rendering of a turn with these calls; None if the template rejects it."""
        return self.of_turn(message_of(calls, variant, **more), variant)

    def of_turn(self, message: Message, variant: Variant) -> str | None:
        """Return the rendering of an assistant message and of the messages that follow it in the given variant."""
        follow: list[Message] = [{"role": "user", "content": NEXT}] if variant.follow else []
        if variant.follow == "answer" and "tool_calls" in message:
            follow.insert(0, {"role": "assistant", "content": DONE})
        return self.render([message, *follow], prompt=bool(variant.follow))

    def tokens_in(self, text: str) -> list[tuple[int, int]]:
        """Return the ranges of the markers in a text; if two overlap, the template's special tokens take precedence."""
        spans = [match.span() for match in _TOKEN.finditer(text)]
        own = "|".join(map(re.escape, sorted(self.special_tokens, key=len, reverse=True)))
        special = [match.span() for match in re.finditer(own, text)] if own else []
        free = [span for span in spans if not any(span[0] < end and start < span[1] for start, end in special)]
        return sorted((*special, *free))

    def edge_after(self, text: str, at: int) -> int:
        """Return the first offset from `at` onwards that is not inside a marker."""
        return next((end for start, end in self.tokens_in(text) if start < at < end), at)

    def edge_before(self, text: str, at: int) -> int:
        """Return the last offset up to `at` that is not inside a marker."""
        return next((start for start, end in self.tokens_in(text) if start < at < end), at)


def message_of(calls: Sequence[CallOf], variant: Variant, **more: Any) -> Message:
    """Return the assistant message with these calls."""
    return {
        "role": "assistant",
        "content": variant.content,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": dump(call.arguments) if variant.as_text else call.arguments,
                },
            }
            for call in calls
        ],
        **more,
    }


def result_of(call: CallOf, content: str) -> Message:
    """Return the message with the result of a call."""
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}


def find_frames(renderings: Renderings, call: CallOf, variant: Variant) -> list[Frame]:
    """Return the texts that may be before and after the calls in a rendering, the most likely pair first."""
    rendering = renderings.of_calls([call], variant)
    if rendering is None:
        return []
    starts = dict.fromkeys(at for at in _starts(renderings, rendering, call, variant) if at is not None)
    end = len(rendering) - len(_turn_end(renderings, rendering, variant))
    end = _without_end_tokens(renderings, rendering, end)
    header = _turn_header(renderings)
    return [
        Frame(rendering[:at], rendering[end:])
        for at in starts
        if at < end and not (header and header in rendering[at:end])
    ]


def _starts(renderings: Renderings, rendering: str, call: CallOf, variant: Variant) -> Iterable[int | None]:
    """Yield the offsets at which the text of calls may begin, the most likely first; None for an unknown offset.

    The offsets are, in this order: after words in the same turn; after the prompt; where an answer would begin; after
    the user's question.
    """
    asked = renderings.render([], prompt=False)
    prompt = renderings.render([], prompt=True)
    answer = renderings.of_turn({"role": "assistant", "content": ANSWER}, variant)
    asked = prompt if asked is None else asked
    least = common_prefix(asked, rendering) if asked is not None else 0
    with_words = renderings.of_calls([call], variant, content=ANSWER)
    if with_words is not None:
        yield _after_words(renderings, rendering, with_words, call, least)
    if prompt is not None and asked is not None and len(prompt) > len(asked) and prompt.startswith(asked):
        yield renderings.edge_before(rendering, common_prefix(prompt, rendering))
    if answer is not None and ANSWER in answer:
        shared = common_prefix(answer[: answer.rindex(ANSWER)], rendering)
        yield renderings.edge_before(rendering, shared)
    yield renderings.edge_before(rendering, least) or None


def _after_words(renderings: Renderings, rendering: str, with_words: str, call: CallOf, least: int) -> int | None:
    """Return the offset at which a call begins, found by comparison with a rendering that has words before it.

    Return None if the other rendering does not contain the words.
    """
    at, other = rendering.rfind(call.name), with_words.rfind(call.name)
    words = with_words.rfind(ANSWER, 0, other)
    if at < 0 or words < 0:
        return None
    shared = common_suffix(rendering[least:at], with_words[words + len(ANSWER) : other])
    return renderings.edge_after(rendering, at - shared)


def _turn_header(renderings: Renderings) -> str:
    """Return the beginning of the model's turn, up to the end of its first marker; empty if unknown.

    No call contains this text.
    """
    header = _header_text(renderings)
    return next((header[:end] for _, end in renderings.tokens_in(header)), "")


def _header_text(renderings: Renderings) -> str:
    """Return the text that the template adds after a conversation to ask for a reply; empty if unknown."""
    asked, prompt = renderings.render([], prompt=False), renderings.render([], prompt=True)
    if prompt is None or (asked is not None and not prompt.startswith(asked)):
        return ""
    return (prompt[len(asked) :] if asked is not None else _last_header(renderings, prompt)).strip()


def _last_header(renderings: Renderings, prompt: str) -> str:
    """Return the end of a prompt: all text after the second-to-last marker, including the last marker itself.

    Markers of reasoning are ignored.
    """
    rest = prompt[prompt.rindex(QUESTION) + len(QUESTION) :] if QUESTION in prompt else prompt
    reasoning = reply_markers().reasoning_tags
    tags = {*reasoning, *reasoning.values()}
    tokens = [span for span in renderings.tokens_in(rest) if rest[slice(*span)] not in tags]
    return rest[tokens[-2][1] :] if len(tokens) > 1 else rest


def _without_end_tokens(renderings: Renderings, rendering: str, end: int) -> int:
    """Return the offset at which the calls in `rendering[:end]` end. Tokens that end a turn are not part of the calls.

    Such tokens are the known end tokens, the template's special tokens, and the token that ends an answer.
    """
    ends = {*reply_markers().end_tokens, *renderings.special_tokens}
    for variant in (Variant(as_text=False, content="", follow=follow) for follow in _FOLLOWS[:2]):
        answer = renderings.of_turn({"role": "assistant", "content": ANSWER}, variant)
        after = "" if answer is None or ANSWER not in answer else answer[answer.rindex(ANSWER) + len(ANSWER) :].lstrip()
        ends |= {after[:stop] for start, stop in renderings.tokens_in(after)[:1] if start == 0}
    while True:
        bare = rendering[:end].rstrip()
        token = next((token for token in ends if token and bare.endswith(token)), "")
        if not token:
            return end
        end = len(bare) - len(token)


def _turn_end(renderings: Renderings, rendering: str, variant: Variant) -> str:
    """Return the text at the end of a rendering that comes after the turn's calls.

    If an answer follows the calls, this is the text from the answer's header on. Otherwise it is the text with which
    the rendering of an answer without calls ends too.
    """
    answer = renderings.of_turn({"role": "assistant", "content": ANSWER}, variant)
    if variant.follow == "answer" and DONE in rendering:
        at = rendering.rindex(DONE)
        return rendering[len(rendering[:at].rstrip().removesuffix(_header_text(renderings))) :]
    end = len(rendering)
    if answer is not None and ANSWER in answer:
        tail = answer[answer.rindex(ANSWER) + len(ANSWER) :]
        end -= common_suffix(tail, rendering)
        end = renderings.edge_after(rendering, end)
    return rendering[end:]


def common_prefix(one: str, other: str) -> int:
    """Return the length of the longest common prefix of two texts."""
    length = min(len(one), len(other))
    return next((at for at in range(length) if one[at] != other[at]), length)


def common_suffix(one: str, other: str) -> int:
    """Return the length of the longest common suffix of two texts."""
    return common_prefix(one[::-1], other[::-1])


def is_printed_object(text: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a text holds arguments as Python prints them.

    This is how a template that expects the arguments as text writes an object.
    """
    return str(dict(arguments)) in text and json.dumps(arguments) != str(dict(arguments))
