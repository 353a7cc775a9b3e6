"""Harmony mode: render the whole conversation in gpt-oss' own format for a raw endpoint, and parse the reply here.

Neither the server's chat template nor its parser, which can break on a reply, is involved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from promptools.harmony.convert import Converted, Options, convert, effort_of
from promptools.harmony.names import FUNCTIONS, Names, Place
from promptools.harmony.render import IDENTITY, render, render_ids
from promptools.harmony.tokens import CONTROL, IDS
from promptools.modes.foreign import Foreign
from promptools.modes.mode import Upstream
from promptools.modes.names import in_harmony, short
from promptools.modes.reader import HARMONY, ReplyReader
from promptools.modes.request import not_offered, passed_on
from promptools.wire.raw.fates import Prompt
from promptools.wire.shapes import as_object, as_text

if TYPE_CHECKING:
    from promptools.harmony.render import Encode, Message
    from promptools.modes.ask import Ask
    from promptools.types import ModeName, NewId

ADVISED: Mapping[str, float] = MappingProxyType({"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0})
"""Sampling for a request that sets none (openai/gpt-oss README, 2025-08: temperature 1.0, top_p 1.0): the model's own
distribution. By default llama.cpp truncates it, and vLLM follows a file that may not be there."""
LEAST = 4_096
"""Tokens for an answer where it is not known how many are left: enough for a call after some reasoning."""
BYTES = 2
"""Bytes per token, where there is no vocabulary to count with: fewer than in any text except runs of symbols. Prose has
four, so the prompt is overestimated, and the answer gets less than there is room for."""
PREFILLS = MappingProxyType({"channel": "<|channel|>analysis", "thought": "<|channel|>analysis<|message|>"})

_MARKER = re.compile(r"<\|(\w+)\|>")
_EFFORT_IN_TEMPLATES = ("reasoning_effort", "enable_thinking", "thinking")


class Harmony:
    """Render the request in Harmony, and read the reply as Harmony."""

    name: Final[ModeName] = "harmony"

    def body(self, ask: Ask) -> Upstream:
        """Encode the request. Raises UsageError for a conversation that Harmony cannot express or an unknown effort."""
        notes = not_offered(ask, self.name)
        template = as_object(ask.body.get("chat_template_kwargs"))
        ignored = sorted(template.keys() - {"model_identity", *_EFFORT_IN_TEMPLATES})
        if ignored:
            notes.append(f"not sent: {', '.join(ignored)} of chat_template_kwargs; no template is applied")
        places = _places(ask)
        instruction = _order(ask, places)
        if instruction:
            notes.append(f"tool_choice {ask.choice.kind} was put into words")
        converted = _convert(ask, template, instruction)
        prefill = _prefill(ask, places)
        sent = in_harmony(places)
        notes += (f"the tool {name!r} was sent as {other!r}" for name, other in sent.items())
        names = {other: name for name, other in sent.items()}
        body = {**_advised(ask), **{key: value for key, value in passed_on(ask).items() if value is not None}}
        foreign = Foreign(CONTROL, CONTROL)
        prompt = _prompt(ask, converted, prefill, foreign)
        notes += (*converted.notes, *foreign.notes)
        return Upstream(body, tuple(notes), names, HARMONY, prompt, prefill, restore=foreign.restore)

    def reader(self, ask: Ask, upstream: Upstream, new_id: NewId) -> ReplyReader:
        """Return a reader of Harmony that starts after the prefill."""
        return ReplyReader(ask, upstream, new_id)


def _places(ask: Ask) -> dict[str, Place]:
    """Return the namespace and recipient of each offered tool."""
    names = Names(ask.offered.names)
    return {name: names.place(name) for name in ask.offered.names}


# --- the conversation ------------------------------------------------------------------------------------------------


def _convert(ask: Ask, template: Mapping[str, Any], order: str) -> Converted:
    options = Options(
        identity=as_text(template.get("model_identity")) or IDENTITY,
        date=ask.today,
        effort=effort_of(_effort(ask.body, template)),
        tools_in=ask.options.tools_in,
        thoughts=ask.options.thoughts,
        order=ask.options.order,
    )
    form = as_object(ask.body.get("response_format"))
    return convert(_messages(ask, order), ask.offered, response_format=form, options=options)


def _effort(body: Mapping[str, Any], template: Mapping[str, Any]) -> Any:
    """Return the reasoning effort of the request, in any of the fields that servers know."""
    efforts = (
        body.get("reasoning_effort"),
        as_object(body.get("reasoning")).get("effort"),
        body.get("think"),
        *(template.get(key) for key in _EFFORT_IN_TEMPLATES),
    )
    return next((effort for effort in efforts if effort is not None), None)


def _messages(ask: Ask, order: str) -> list[dict[str, Any]]:
    """Return the messages; system messages become instructions in their order, wherever they are."""
    messages, configured = ask.messages, ask.system_prompt
    if configured:
        own = {"role": "system", "content": configured}
        if ask.profile.prompt_placement == "replace":
            start = next((index for index, message in enumerate(messages) if not _instructs(message)), len(messages))
            messages = messages[start:]
        messages = [*messages, own] if ask.profile.prompt_placement == "append" else [own, *messages]
    return [*messages, {"role": "system", "content": order}] if order else messages


def _instructs(message: Mapping[str, Any]) -> bool:
    return message.get("role") in {"system", "developer"}


# --- a required call -------------------------------------------------------------------------------------------------


def _order(ask: Ask, places: Mapping[str, Place]) -> str:
    """Return the instruction to call a tool; empty where no call is required, or a prefilled header forces it."""
    if not ask.choice.forced or not places or not _by_words(ask):
        return ""
    which = f"the tool {short(places[ask.choice.name])}" if ask.choice.name else "one of the tools"
    return f"Call {which} now; do not answer in words."


def _prefill(ask: Ask, places: Mapping[str, Place]) -> str:
    """Return the start of the reply that the prompt ends with."""
    fixed = PREFILLS.get(ask.options.prefill)
    if fixed is not None:
        return fixed
    return _header(list(places.values())) if ask.choice.forced and places and not _by_words(ask) else ""


def _by_words(ask: Ask) -> bool:
    """Return whether a required call is asked for by an instruction rather than a prefilled header.

    A prefilled header makes the call certain, but leaves no place for reasoning, in which gpt-oss works out the
    arguments. So the first attempt has an instruction, and the header is for the retry after it was ignored.
    """
    match ask.options.prefill:
        case "call":
            return False
        case "auto":
            return not (ask.feedback and ask.feedback[-1].get("role") == "user")
        case _:
            return True


def _header(places: Sequence[Place]) -> str:
    """Write the header of a call as gpt-oss does, as far as it is determined; it ends at a token boundary."""
    spaces = {place.space for place in places}
    channel, kind = ("commentary", " <|constrain|>json") if spaces == {FUNCTIONS} else ("analysis", " code")
    if len(places) == 1:
        return f"<|channel|>{channel} to={places[0].recipient}{kind}<|message|>"
    if len(spaces) == 1:
        return f"<|channel|>{channel} to={spaces.pop()}"
    return "<|channel|>commentary to="


# --- the prompt ------------------------------------------------------------------------------------------------------


def _prompt(ask: Ask, told: Converted, prefill: str, foreign: Foreign) -> Prompt:
    """Render the prompt. Token ids need no escaping, since text is then never searched for control tokens."""
    vocabulary = ask.vocabulary() if ask.vocabulary is not None and ask.profile.raw_ids else None
    if vocabulary is None:
        text = render(map(_with_json, told.messages), escape=foreign.text) + prefill
        return Prompt(text, _room(ask, len(text.encode("utf-8", "surrogatepass")) // BYTES))
    encode, decode = vocabulary
    ids = (*render_ids(told.messages, encode), *_ids(prefill, encode))
    # the text ends before a stop string, the ids after it (vLLM 0.32.0)
    return Prompt(ids, _room(ask, len(ids)), decode if ask.body.get("stop") is None else None)


def _with_json(message: Message) -> Message:
    """Escape a call's arguments with JSON escapes, which do not change their value."""
    if message.role != "assistant" or not message.recipient or not isinstance(message.content, str):
        return message
    return replace(message, content=CONTROL.escape_json(message.content))


def _ids(prefill: str, encode: Encode) -> Iterator[int]:
    for at, part in enumerate(_MARKER.split(prefill)):
        if at % 2:
            yield IDS[part]
        elif part:
            yield from encode(part)


def _room(ask: Ask, prompt: int) -> int:
    """Return how many tokens are left for the answer; `prompt` is an upper bound of the prompt's."""
    if ask.room is not None:
        return ask.room
    context = ask.profile.context
    return LEAST if context is None else max(LEAST, context - prompt)


def _advised(ask: Ask) -> dict[str, float]:
    """Return the recommended sampling, as far as the server accepts it."""
    return {key: value for key, value in ADVISED.items() if key in {"temperature", "top_p", *ask.profile.sampling}}
