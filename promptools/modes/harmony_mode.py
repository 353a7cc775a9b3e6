"""Harmony mode: render the conversation in gpt-oss' own format for a raw endpoint, and parse the reply in promptools.

Neither the server's chat template nor its parser, which can fail on a reply, is involved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from promptools.harmony.conversation import (
    IN_DISTRIBUTION,
    WRITTEN,
    ConvertedRequest,
    Options,
    convert,
    parse_effort,
)
from promptools.harmony.recipients import FUNCTIONS, RecipientNames, ToolAddress
from promptools.harmony.renderer import IDENTITY, encode_messages, render_messages
from promptools.harmony.tokens import CONTROL_MARKUP, TOKEN_IDS
from promptools.modes.foreign_text import ForeignEscaper
from promptools.modes.history import hint_messages
from promptools.modes.prepared_request import (
    PreparedRequest,
    answer_tokens,
    forwarded_body,
    other_tool_notes,
    prompt_tokens,
)
from promptools.modes.reply_reader import HARMONY
from promptools.modes.tool_names import short_recipient
from promptools.modes.verdict import NO_CALL_OR_ANSWER
from promptools.patterns import lazy_pattern
from promptools.wire.json_body import as_object, as_text
from promptools.wire.raw_endpoints import END_OF_TURN_IDS, END_OF_TURN_TOKENS, RawPrompt

if TYPE_CHECKING:
    from promptools.harmony.renderer import Encode, Message
    from promptools.modes.tool_request import ToolRequest

HARMONY_FAMILY = "gpt-oss"
"""The family of models trained on Harmony."""
RECOMMENDED_SAMPLING: Mapping[str, float] = MappingProxyType({"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0})
"""Sampling parameters to send unless the request sets them; they leave the model's token distribution unchanged.

The README of openai/gpt-oss recommends this (2025-08: temperature 1.0, top_p 1.0). Without these values, llama.cpp
truncates the distribution, and vLLM takes its defaults from a file that may be missing.
"""
PRESERVED_TOKENS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", *END_OF_TURN_TOKENS)
"""Control tokens that the server must leave in the text of a reply, even if the model file says to remove them."""
PREFILLS = MappingProxyType({"channel": "<|channel|>analysis", "thought": "<|channel|>analysis<|message|>"})

_CONTROL_TOKEN = lazy_pattern(r"<\|(\w+)\|>")
_EFFORT_IN_TEMPLATES = ("reasoning_effort", "enable_thinking", "thinking")


def prepare_harmony(request: ToolRequest) -> PreparedRequest:
    """Render the request in Harmony.

    Raises UsageError for a conversation that Harmony cannot express, or for an unknown reasoning effort.
    """
    notes = other_tool_notes(request, "harmony")
    template = as_object(request.body.get("chat_template_kwargs"))
    ignored = sorted(template.keys() - {"model_identity", *_EFFORT_IN_TEMPLATES})
    if ignored:
        notes.append(f"not sent: {', '.join(ignored)} of chat_template_kwargs; no template is applied")
    places = _tool_places(request)
    instruction = _call_instruction(request, places)
    if instruction:
        notes.append(f"tool_choice {request.choice.kind} was put into the prompt")
    sent = {name: recipient for name, place in places.items() if (recipient := short_recipient(place)) != name}
    messages, repeats = hint_messages(request, "harmony", _messages(request, instruction), sent)
    converted = _convert(request, template, messages)
    prefill = _prefill(request, places)
    notes += (f"the tool {name!r} was sent as {other!r}" for name, other in sent.items())
    names = {other: name for name, other in sent.items()}
    body = {
        **_recommended_sampling(request),
        **{key: value for key, value in forwarded_body(request).items() if value is not None},
    }
    foreign = ForeignEscaper(CONTROL_MARKUP, CONTROL_MARKUP)
    prompt = _render_prompt(request, converted, prefill, foreign)
    notes += (*converted.notes, *repeats, *foreign.notes)
    return PreparedRequest(
        body,
        tuple(notes),
        names,
        HARMONY,
        prompt,
        prefill,
        restore=foreign.restore,
        repeat_action=request.repeat_action("harmony"),
    )


def _tool_places(request: ToolRequest) -> dict[str, ToolAddress]:
    """Map the name of each offered tool to its address in Harmony: its namespace and the recipient of its calls."""
    free_text = {tool.name for tool in request.offered if tool.free_text is not None}
    names = RecipientNames(request.offered.names, free_text=free_text)
    return {name: names.address_of(name) for name in request.offered.names}


# --- the conversation ------------------------------------------------------------------------------------------------


def _convert(request: ToolRequest, template: Mapping[str, Any], messages: Sequence[dict[str, Any]]) -> ConvertedRequest:
    own = request.options
    trained = frozenset(name.partition(".")[0] for name in request.profile.trained_tools) or IN_DISTRIBUTION
    options = Options(
        identity=as_text(template.get("model_identity")) or IDENTITY,
        date=request.today,
        effort=parse_effort(_effort(request.body, template)),
        tools_in=own.tools_in or (request.profile.agent_tools_in if own.agent else "developer"),
        trained=trained,
        namespaces=own.namespaces,
        thoughts=own.thoughts,
        order=own.order,
    )
    form = as_object(request.body.get("response_format"))
    return convert(messages, request.offered, response_format=form, options=options)


def _effort(body: Mapping[str, Any], template: Mapping[str, Any]) -> Any:
    """Return the request's reasoning effort, which can be in several fields; None if the request has none."""
    efforts = (
        body.get("reasoning_effort"),
        as_object(body.get("reasoning")).get("effort"),
        body.get("think"),
        *(template.get(key) for key in _EFFORT_IN_TEMPLATES),
    )
    return next((effort for effort in efforts if effort is not None), None)


def _messages(request: ToolRequest, instruction: str) -> list[dict[str, Any]]:
    """Return the request's messages with the config's system prompt and, at the end, `instruction` unless it is empty.

    If the profile's `system_prompt_placement` is `replace`, the config's prompt replaces the app's instructions at the
    beginning.
    """
    messages, configured = request.messages, request.system_prompt
    if written := request.options.written:
        texts = [written.get(str(at)) for at in range(len(messages))]
        messages = [{**each, WRITTEN: text} if text else each for each, text in zip(messages, texts, strict=True)]
    if configured:
        own = {"role": "system", "content": configured}
        if request.profile.system_prompt_placement == "replace":
            start = next(
                (index for index, message in enumerate(messages) if not _is_instruction(message)), len(messages)
            )
            messages = messages[start:]
        messages = [*messages, own] if request.profile.system_prompt_placement == "append" else [own, *messages]
    return [*messages, {"role": "system", "content": instruction}] if instruction else messages


def _is_instruction(message: Mapping[str, Any]) -> bool:
    return message.get("role") in {"system", "developer"}


# --- a required call -------------------------------------------------------------------------------------------------


def _call_instruction(request: ToolRequest, places: Mapping[str, ToolAddress]) -> str:
    """Return the instruction to call a tool; empty if no call is required, or if a prefilled header forces the call."""
    if not request.choice.forced or not places or not _asks_in_text(request):
        return ""
    which = f"the tool {short_recipient(places[request.choice.name])}" if request.choice.name else "one of the tools"
    return f"Call {which} now; do not answer in plain text."


def _prefill(request: ToolRequest, places: Mapping[str, ToolAddress]) -> str:
    """Return the beginning of the reply, which the prompt ends with; empty if the model writes the whole reply."""
    fixed = PREFILLS.get(request.options.prefill)
    if fixed is not None:
        return fixed
    return (
        _call_header(list(places.values())) if request.choice.forced and places and not _asks_in_text(request) else ""
    )


def _asks_in_text(request: ToolRequest) -> bool:
    """Return whether a required call is requested by an instruction instead of a prefilled header.

    A prefilled header makes the call certain, but leaves no room for reasoning, in which gpt-oss works out the
    arguments. So the first attempt uses an instruction. If the model ignores it, the retry uses the header.
    """
    match request.options.prefill:
        case "call":
            return False
        case "auto":
            return not (request.feedback and request.feedback[-1].get("role") == "user")
        case _:
            return True


def _call_header(addresses: Sequence[ToolAddress]) -> str:
    """Return the beginning of a call's header in gpt-oss' format, as far as it is the same for all these tools.

    The text ends at a token boundary.
    """
    spaces = {address.namespace for address in addresses}
    channel, kind = ("commentary", " <|constrain|>json") if spaces == {FUNCTIONS} else ("analysis", " code")
    if len(addresses) == 1:
        return f"<|channel|>{channel} to={addresses[0].recipient}{kind}<|message|>"
    if len(spaces) == 1:
        return f"<|channel|>{channel} to={spaces.pop()}"
    return "<|channel|>commentary to="


# --- the prompt ------------------------------------------------------------------------------------------------------


def _render_prompt(
    request: ToolRequest, converted: ConvertedRequest, prefill: str, foreign: ForeignEscaper
) -> RawPrompt:
    """Render the prompt as token ids if the vocabulary is known, else as text.

    Only a text prompt must be escaped, because token ids are never searched for control tokens.
    """
    vocabulary = request.vocabulary() if request.vocabulary is not None and request.profile.raw_ids else None
    if vocabulary is None:
        messages = map(_escape_arguments, converted.messages)
        told = _corrections(request)

        def escape(text: str) -> str:
            correction = text.removesuffix(NO_CALL_OR_ANSWER) if text in told else text
            return foreign.escape_text(correction) + text[len(correction) :]

        text = render_messages(messages, escape=escape) + prefill
        ids = tuple(END_OF_TURN_IDS) if request.profile.raw_ids else ()
        stops = () if request.profile.raw_ids else END_OF_TURN_TOKENS
        room = answer_tokens(request, prompt_tokens(request, text))
        return RawPrompt(text, room, stops=stops, stop_ids=ids, preserved=PRESERVED_TOKENS)
    encode, decode = vocabulary
    ids = (*encode_messages(converted.messages, encode), *_prefill_ids(prefill, encode))
    # a reply's text ends before a stop string, its ids end after it (vLLM 0.32.0)
    decode_reply = decode if request.body.get("stop") is None else None
    return RawPrompt(ids, answer_tokens(request, len(ids)), decode_reply, stop_ids=tuple(END_OF_TURN_IDS))


def _corrections(request: ToolRequest) -> frozenset[str]:
    """Return the feedback texts that are sent as reasoning; empty unless the option `harmony_react` is set.

    Such a text may end with a sentence that contains control tokens. HarmonyReAct's harness sends them as tokens, so
    this sentence must not be escaped.
    """
    if not request.options.harmony_react:
        return frozenset()
    return frozenset(text for message in request.feedback if (text := as_text(message.get("reasoning"))))


def _escape_arguments(message: Message) -> Message:
    """Escape a call's arguments with JSON escapes, which do not change their value; free text cannot be escaped."""
    if message.role != "assistant" or not message.recipient or not isinstance(message.content, str):
        return message
    if not message.content.lstrip().startswith("{"):
        return message
    return replace(message, content=CONTROL_MARKUP.escape_json(message.content))


def _prefill_ids(prefill: str, encode: Encode) -> Iterator[int]:
    for at, part in enumerate(_CONTROL_TOKEN.split(prefill)):
        if at % 2:
            yield TOKEN_IDS[part]
        elif part:
            yield from encode(part)


def _recommended_sampling(request: ToolRequest) -> dict[str, float]:
    """Return the recommended sampling parameters that the server accepts."""
    return {
        key: value
        for key, value in RECOMMENDED_SAMPLING.items()
        if key in {"temperature", "top_p", *request.profile.sampling}
    }
