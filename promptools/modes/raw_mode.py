"""Raw mode: the server renders its own chat template, including tools; its raw endpoint continues the prompt.

The model sees the format that it was trained on, and the server does not parse the reply: promptools reads the reply,
including control tokens. Before each attempt, the exchange has the conversation from `prepare_conversation` rendered,
either by the server or with a template that the config names, and passes the prompt to `prepare_raw`.

Requirements that a template cannot express, such as `tool_choice`, are checked only in the reply. There are two
exceptions. First, the endpoint enforces a JSON `response_format`, unless tools are offered or the prompt ends inside
reasoning. Second, if a call is required, the prompt ends with the beginning of a call in the model's own format. If the
template opens reasoning, the model may reason first. Only after a reply without the call does the next prompt close the
reasoning and begin the call.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from promptools import dialects
from promptools.dialects.reply_markers import reply_markers
from promptools.dialects.written_markup import written_markup
from promptools.errors import UsageError
from promptools.modes.harmony_mode import HARMONY_FAMILY, PRESERVED_TOKENS
from promptools.modes.native_mode import prepare_native
from promptools.modes.prepared_request import (
    PreparedRequest,
    answer_tokens,
    forwarded_body,
    other_tool_notes,
    prompt_tokens,
)
from promptools.modes.reply_reader import HARMONY
from promptools.modes.tool_request import ToolChoice
from promptools.patterns import lazy_pattern
from promptools.profiles import all_control_tokens, family_dialect, load_builtin
from promptools.types import Call
from promptools.wire.chat_template import TEMPLATE_KEYS, RenderedPrompt
from promptools.wire.json_body import as_list, as_object, as_text, split_content
from promptools.wire.raw_endpoints import END_OF_TURN_IDS, END_OF_TURN_TOKENS, RawPrompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.modes.tool_request import ToolRequest


_TURN_OPENER = lazy_pattern(r"\s*(?:<[|｜][^\s<>]{1,40}[|｜]>|<[a-z_]{1,40}>|\[[A-Z_]{1,40}\])")
"""Matches a token that opens a turn, such as `<|im_start|>`."""
_LONGEST_TAIL = 200
"""How many characters at the end of a prompt are searched for an opening reasoning tag."""
_PARTIAL_MARKUP = lazy_pattern(r" *[<{\[\"'|]+\Z")
"""Matches, at the end of the text with which all calls begin, the beginning of further markup.

This part is removed from the text, because the arguments of some calls may begin with other markup.
"""


def prepare_conversation(request: ToolRequest) -> PreparedRequest:
    """Return the conversation and the tools as native mode encodes them, to be rendered by the template.

    Raises UsageError for a conversation with images or sound, which a prompt cannot contain.
    """
    if any(split_content(message.get("content"))[1] for message in request.messages):
        raise UsageError("a prompt cannot hold the conversation's parts that are not text")
    if request.choice.forced:  # the call is begun at the end of the prompt
        body = {key: value for key, value in request.body.items() if key != "response_format"}
        request = replace(request, body=body, json_answer=False)
    profile = replace(request.profile, format_beside_tools=False)
    return prepare_native(replace(request, profile=profile, choice=ToolChoice(), other_tools=()))


def prepare_raw(request: ToolRequest, conversation: PreparedRequest, rendered: RenderedPrompt) -> PreparedRequest:
    """Encode the request with the prompt `rendered`, which the template made from `conversation`."""
    notes = [*other_tool_notes(request, "raw"), *conversation.notes, *rendered.notes]
    notes += _notes_on_form(request, conversation, rendered.text)
    body = {key: value for key, value in forwarded_body(request).items() if key not in _RENDERED_KEYS}
    constraint = _answer_constraint(request, conversation, notes, in_reasoning=_opens_reasoning(rendered.text))
    dialect = _own_dialect(request)
    ends = () if dialect == HARMONY else _turn_ends(request, rendered.text)
    return PreparedRequest(
        body,
        tuple(notes),
        conversation.client_names,
        dialect,
        _raw_prompt(request, rendered, ends, constraint),
        rendered.prefill,
        restore=conversation.restore,
        repeat_action=conversation.repeat_action,
        in_reasoning=_opens_reasoning(rendered.text),
        turn_ends=ends,
    )


_RENDERED_KEYS = frozenset(TEMPLATE_KEYS) - {"model"} | {"response_format"}


def shows_tools(conversation: PreparedRequest, prompt: RenderedPrompt) -> bool:
    """Return whether a prompt contains the name of at least one tool of its conversation.

    Also return True if the conversation has no tools, or if the prompt's text is unknown.
    """
    sent = [as_object(as_object(tool).get("function")).get("name") for tool in as_list(conversation.body.get("tools"))]
    return not sent or prompt.text is None or any(isinstance(name, str) and name in prompt.text for name in sent)


def _notes_on_form(request: ToolRequest, conversation: PreparedRequest, text: str | None) -> tuple[str, ...]:
    """Return a note if the template writes the conversation's last call differently from the model's dialect.

    The dialect is still used, because it includes repairs that no template shows. gpt-oss is exempt, because it writes
    the parts of a header in either of two orders.
    """
    dialect, call = _own_dialect(request), _last_call(conversation.body)
    if dialect is None or dialect == HARMONY or request.profile.family is None or call is None or not text:
        return ()
    try:
        before, found, _ = dialects.get(dialect).render_calls([call]).partition(call.name)
    except UsageError:  # a dialect that can only be parsed
        return ()
    head = before + found
    if not found or head in text or "".join(head.split()) in "".join(text.split()):
        return ()
    return (f"the chat template writes calls differently from the model's dialect, {dialect!r}, which is kept",)


def _last_call(body: Mapping[str, Any]) -> Call | None:
    """Return the first call, without its arguments, of the last turn that has calls; None if no turn has calls."""
    turns = (as_list(as_object(message).get("tool_calls")) for message in reversed(as_list(body.get("messages"))))
    call = as_object(next(filter(None, turns), [None])[0])
    name = as_text(as_object(call.get("function")).get("name"))
    return Call(as_text(call.get("id")), name, {}, "{}") if name else None


def _own_dialect(request: ToolRequest) -> str | None:
    """Return the dialect in which the model's template writes calls; None if it is unknown."""
    family, dialect = request.profile.family, request.profile.template_dialect
    if dialect is not None:
        return dialect
    if family == HARMONY_FAMILY:
        return HARMONY
    return family_dialect(family) if family else None


def _raw_prompt(
    request: ToolRequest, rendered: RenderedPrompt, ends: tuple[str, ...], constraint: Mapping[str, Any]
) -> RawPrompt:
    is_text = isinstance(rendered.content, str)
    harmony = _own_dialect(request) == HARMONY
    size = prompt_tokens(request, rendered.content) if isinstance(rendered.content, str) else len(rendered.content)
    return RawPrompt(
        rendered.content,
        answer_tokens(request, size, rendered.context),
        stops=END_OF_TURN_TOKENS if harmony and is_text else ends,
        stop_ids=tuple(END_OF_TURN_IDS) if harmony and not is_text else (),
        preserved=PRESERVED_TOKENS if harmony else _preserved_tokens(request),
        constraint=constraint,
        add_special_tokens=is_text,
        text=None if is_text else rendered.text,
    )


def _preserved_tokens(request: ToolRequest) -> tuple[str, ...]:
    """Return the control tokens that a reply may contain: those of the model's family, or all if no family is known."""
    known, dialect, markers = request.profile.control_tokens, _own_dialect(request), reply_markers()
    tokens = set(all_control_tokens() if known is None else known)
    tokens |= {*markers.reasoning_tags, *markers.reasoning_tags.values(), *markers.end_tokens, *PRESERVED_TOKENS}
    tokens |= written_markup(dialect).tokens if dialect else frozenset()
    return tuple(sorted(token for token in tokens if "{" not in token))


# --- the prompt's end ------------------------------------------------------------------------------------------------


def _opens_reasoning(text: str | None) -> bool | None:
    """Return whether a prompt ends inside reasoning; None if the prompt's text is unknown."""
    if text is None:
        return None
    return _reasoning_opener(text) != ""


def _reasoning_opener(text: str) -> str:
    """Return the opening reasoning tag that ends a prompt, ignoring white space after it; empty if there is none."""
    tail = text[-_LONGEST_TAIL:].rstrip()
    # The templates of DeepSeek-R1, Qwen3-Thinking and MiniMax-M2 open `<think>`: the output has only the closing tag.
    return next((tag for tag in reply_markers().reasoning_tags if tail.endswith(tag.rstrip())), "")


def _close_reasoning(opener: str) -> str:
    return f"\n{reply_markers().reasoning_closer(opener)}\n\n" if opener else ""


def _turn_ends(request: ToolRequest, text: str | None) -> tuple[str, ...]:
    """Return the texts that end the model's turn; what a server returns after such a text is not part of the reply.

    They are the end tokens of the model's dialect, and the text that the template writes between two turns. The text
    between turns includes the first token of the next turn, so that a reply that only mentions the end token is not
    cut off there.
    """
    dialect = _own_dialect(request)
    declared = dialects.get(dialect).end_tokens if dialect else ()
    if not text:
        return declared
    start, token = max((text.rfind(token), token) for token in reply_markers().end_tokens)
    opener = _TURN_OPENER.match(text, start + len(token)) if start >= 0 else None
    return declared if opener is None else (token + opener[0], *declared)


def beginning_of_call(request: ToolRequest, conversation: PreparedRequest, prompt: RenderedPrompt) -> str | None:
    """Return the text with which a required call begins, to be added to the end of the prompt.

    All calls in the model's dialect begin with this text. It ends before the tool's name or, if a tool is named, before
    the arguments. The result is empty if no call is required, or if the text is unknown. The result is None if the
    template may write calls differently; then `example_calls` must be rendered to find the text.
    """
    dialect = _own_dialect(request)
    if not (request.choice.forced and len(request.offered)) or dialect == HARMONY:
        return ""
    opens = _opens_reasoning(prompt.text)
    if opens is None or (opens and not request.feedback):
        return ""
    family = request.profile.family
    if dialect is None or family is None or load_builtin(family).template_dialect is not None:
        return None  # the templates of such a family write calls in more than one way
    if request.profile.template_dialect is not None:
        return None  # a dialect learned from a template does not have the template's white space
    try:
        head = _common_head(dialect, _sent_name(request, conversation))
    except UsageError:  # a dialect that can only be parsed
        return ""
    assert prompt.text is not None
    return _close_reasoning(_reasoning_opener(prompt.text)) + head if head else ""


def _sent_name(request: ToolRequest, conversation: PreparedRequest) -> str | None:
    """Return the name, as sent to the server, of the tool that `tool_choice` names; None if it names no tool."""
    wanted = request.choice.name
    return next((sent for sent, name in conversation.client_names.items() if name == wanted), wanted)


def _common_head(dialect: str, name: str | None) -> str:
    """Return the text with which a dialect begins all calls to the tool `name` or, if it is None, to any tool."""
    return _common_beginning((dialects.get(dialect).render_calls([call]) for call in _two_calls(name)), name)


def _two_calls(name: str | None) -> tuple[Call, Call]:
    """Return two calls that share only their beginning: to the tool `name` or, if it is None, to different tools."""
    return (
        Call("call00001", name or "a", {}, "{}"),
        Call("call00001", name or "b", {"q": "x"}, '{"q": "x"}'),
    )


def _common_beginning(texts: Iterable[str], name: str | None) -> str:
    common = [letters[0] for letters in takewhile(lambda letters: len({*letters}) == 1, zip(*texts, strict=False))]
    return _PARTIAL_MARKUP.sub("", "".join(common)) if name else "".join(common)


def example_calls(request: ToolRequest, conversation: PreparedRequest) -> tuple[dict[str, Any], ...]:
    """Return two request bodies to render; each has the conversation, then a sample call and its result.

    The results are there because servers treat a final assistant message as the beginning of the reply.
    """
    body = conversation.body
    return tuple(
        {**body, "messages": [*as_list(body.get("messages")), *_example_turn(call)]}
        for call in _two_calls(_sent_name(request, conversation))
    )


def _example_turn(call: Call) -> tuple[dict[str, Any], ...]:
    function = {"name": call.name, "arguments": call.arguments_json}
    return (
        {"role": "assistant", "content": "", "tool_calls": [{"id": call.id, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": "ok"},
    )


def beginning_in_examples(request: ToolRequest, prompt: RenderedPrompt, examples: Iterable[RenderedPrompt]) -> str:
    """Return the text with which calls begin in the rendered examples; empty if the examples do not extend the prompt.

    If the prompt opens reasoning, an example may close the reasoning before its call, or contain no reasoning at all.
    In either case, the returned text closes the reasoning first.
    """
    assert prompt.text is not None
    texts = [example.text or "" for example in examples]
    opener = _reasoning_opener(prompt.text)
    for before, closer in ((prompt.text, ""), (prompt.text.rstrip().removesuffix(opener), _close_reasoning(opener))):
        if all(text.startswith(before) for text in texts):
            return closer + _common_beginning((text[len(before) :] for text in texts), request.choice.name)
    return ""


# --- a required format -----------------------------------------------------------------------------------------------


def _answer_constraint(
    request: ToolRequest, conversation: PreparedRequest, notes: list[str], *, in_reasoning: bool | None
) -> Mapping[str, Any]:
    """Return the raw endpoint's keys that enforce `response_format`; empty if the format is not enforced.

    The format is not enforced if native mode would not send it, if it does not ask for JSON, or if the prompt ends
    inside reasoning.
    """
    form = conversation.body.get("response_format")
    if form is None or not request.json_answer:
        return {}
    if in_reasoning:
        notes.append("response_format is not enforced: the template opens reasoning, for which a grammar has no place")
        return {}
    schema = request.answer_schema
    match request.profile.raw:
        case "llamacpp":
            return {"json_schema": schema or {"type": "object"}}
        case "generate":
            return {"format": schema or "json"}
        case _:
            return {"response_format": form}
