"""Harmony mode: the whole conversation in gpt-oss' own format, for a raw endpoint; the reply is read by us as well.

No server turns the conversation into a prompt, and no server's parser can break on the reply.
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
"""Sampling for a request that says nothing of it (openai/gpt-oss README, 2025-08: temperature 1.0, top_p 1.0): each
token as likely as the model has it. llama.cpp would else cut, and vLLM goes by a file that may not be there."""
LEAST = 4_096
"""Tokens for an answer where it is not known how many are left: a call after some thoughts."""
BYTES = 2
"""Bytes a token, where there is no vocabulary to count with: fewer than in any text but strings of signs. Prose has
four, so the prompt is thought to be longer than it is, and the answer gets less than there is room for."""
PREFILLS = MappingProxyType({"channel": "<|channel|>analysis", "thought": "<|channel|>analysis<|message|>"})

_MARKER = re.compile(r"<\|(\w+)\|>")
_EFFORT_IN_TEMPLATES = ("reasoning_effort", "enable_thinking", "thinking")


class Harmony:
    """Ask in Harmony, and read Harmony."""

    name: Final[ModeName] = "harmony"

    def body(self, ask: Ask) -> Upstream:
        """Write the request; raises UsageError for a conversation that cannot be told, or an unknown effort."""
        notes = not_offered(ask, self.name)
        template = as_object(ask.body.get("chat_template_kwargs"))
        lost = sorted(template.keys() - {"model_identity", *_EFFORT_IN_TEMPLATES})
        if lost:
            notes.append(f"not sent: {', '.join(lost)} of chat_template_kwargs; no template is applied")
        places = _places(ask)
        order = _order(ask, places)
        if order:
            notes.append(f"tool_choice {ask.choice.kind} was put into words")
        told = _convert(ask, template, order)
        prefill = _prefill(ask, places)
        sent = in_harmony(places)
        notes += (f"the tool {name!r} was sent as {other!r}" for name, other in sent.items())
        names = {other: name for name, other in sent.items()}
        body = {**_advised(ask), **{key: value for key, value in passed_on(ask).items() if value is not None}}
        foreign = Foreign(CONTROL, CONTROL)
        prompt = _prompt(ask, told, prefill, foreign)
        notes += (*told.notes, *foreign.notes)
        return Upstream(body, tuple(notes), names, HARMONY, prompt, prefill, restore=foreign.restore)

    def reader(self, ask: Ask, upstream: Upstream, new_id: NewId) -> ReplyReader:
        """Read Harmony, from behind the prefill on."""
        return ReplyReader(ask, upstream, new_id)


def _places(ask: Ask) -> dict[str, Place]:
    """Give the places of the offered tools."""
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
    """Find what the request says of effort, in any of the ways that servers know."""
    said = (
        body.get("reasoning_effort"),
        as_object(body.get("reasoning")).get("effort"),
        body.get("think"),
        *(template.get(key) for key in _EFFORT_IN_TEMPLATES),
    )
    return next((each for each in said if each is not None), None)


def _messages(ask: Ask, order: str) -> list[dict[str, Any]]:
    """Give the messages; system messages become instructions in the order in which they stand, wherever that is."""
    said, configured = ask.messages, ask.system_prompt
    if configured:
        own = {"role": "system", "content": configured}
        if ask.profile.prompt_placement == "replace":
            start = next((at for at, each in enumerate(said) if not _instructs(each)), len(said))
            said = said[start:]
        said = [*said, own] if ask.profile.prompt_placement == "append" else [own, *said]
    return [*said, {"role": "system", "content": order}] if order else said


def _instructs(message: Mapping[str, Any]) -> bool:
    return message.get("role") in {"system", "developer"}


# --- a call that must come -------------------------------------------------------------------------------------------


def _order(ask: Ask, places: Mapping[str, Place]) -> str:
    """Write the words that demand a call; nothing where none is demanded, or its header does."""
    if not ask.choice.forced or not places or not _by_words(ask):
        return ""
    which = f"the tool {short(places[ask.choice.name])}" if ask.choice.name else "one of the tools"
    return f"Call {which} now; do not answer in words."


def _prefill(ask: Ask, places: Mapping[str, Place]) -> str:
    """Give what is said in the model's name."""
    fixed = PREFILLS.get(ask.options.prefill)
    if fixed is not None:
        return fixed
    return _header(list(places.values())) if ask.choice.forced and places and not _by_words(ask) else ""


def _by_words(ask: Ask) -> bool:
    """Tell whether a call that must come is asked for in words.

    A call's header in the model's name makes the call certain, and leaves no place for thoughts, in which gpt-oss finds
    out what to call it with. So it is asked in words first, and the header is for when these were not heeded.
    """
    match ask.options.prefill:
        case "call":
            return False
        case "auto":
            return not (ask.feedback and ask.feedback[-1].get("role") == "user")
        case _:
            return True


def _header(places: Sequence[Place]) -> str:
    """Write the header of a call as gpt-oss does, as far as it is known; it ends where a token may."""
    spaces = {place.space for place in places}
    channel, kind = ("commentary", " <|constrain|>json") if spaces == {FUNCTIONS} else ("analysis", " code")
    if len(places) == 1:
        return f"<|channel|>{channel} to={places[0].recipient}{kind}<|message|>"
    if len(spaces) == 1:
        return f"<|channel|>{channel} to={spaces.pop()}"
    return "<|channel|>commentary to="


# --- the prompt ------------------------------------------------------------------------------------------------------


def _prompt(ask: Ask, told: Converted, prefill: str, foreign: Foreign) -> Prompt:
    """Write the prompt; as ids nothing needs to be escaped, for no control token is looked for in text."""
    vocabulary = ask.vocabulary() if ask.vocabulary is not None and ask.profile.raw_ids else None
    if vocabulary is None:
        text = render(map(_with_json, told.messages), escape=foreign.text) + prefill
        return Prompt(text, _room(ask, len(text.encode("utf-8", "surrogatepass")) // BYTES))
    encode, decode = vocabulary
    ids = (*render_ids(told.messages, encode), *_ids(prefill, encode))
    # the text ends before a stop string, the ids behind it (vLLM 0.32.0)
    return Prompt(ids, _room(ask, len(ids)), decode if ask.body.get("stop") is None else None)


def _with_json(message: Message) -> Message:
    """Escape a call's arguments as JSON, which means the same."""
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
    """Give the tokens that are left for the answer, `prompt` being those of the prompt, or more."""
    if ask.room is not None:
        return ask.room
    context = ask.profile.context
    return LEAST if context is None else max(LEAST, context - prompt)


def _advised(ask: Ask) -> dict[str, float]:
    """Give the sampling that the makers advise, as far as the server takes it."""
    return {key: value for key, value in ADVISED.items() if key in {"temperature", "top_p", *ask.profile.sampling}}
