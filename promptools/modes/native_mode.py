"""Native mode: send the tools as the API's `tools`, adapted to what the server accepts.

The calls that the server returns are checked like calls in text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.json_values import is_array, is_object
from promptools.modes.foreign_text import foreign_escaper
from promptools.modes.history import (
    BLANK_LINE,
    Message,
    Turn,
    alnum9_id,
    fit_template,
    hint_turns,
    join_system,
    parse_history,
    place_system,
    plain_message,
    split_system,
)
from promptools.modes.prepared_request import PreparedRequest, forwarded_body
from promptools.modes.response_format import describe_answer_format
from promptools.modes.tool_names import legal_names, rename_tool
from promptools.wire.json_body import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.modes.foreign_text import ForeignEscaper
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles import Profile
    from promptools.schema import Tools
    from promptools.types import Call, Result

IMAGES_FOLLOW = "(The images of this result follow in the next message.)"


def prepare_native(request: ToolRequest) -> PreparedRequest:
    """Encode the request for native mode, in which the tools are sent in the API's own parameters."""
    turns, repairs = parse_history(request.messages)
    turns, placed = place_system(turns, request.profile)
    foreign = foreign_escaper(request, dialect=None)
    names = [*request.tools.names, *(call.name for turn in turns for call in turn.calls)]
    # gpt-oss writes `to=functions.NAME`: a space in the name is an HTTP 500.
    sent = legal_names(names, request.profile.tool_names)
    sent |= foreign.rename_marked(names, sent)
    notes = [f"the tool {name!r} was sent as {other!r}" for name, other in sent.items()]
    body = forwarded_body(request)
    order = BLANK_LINE.join(
        filter(None, (_set_tools(request, body, sent, notes, foreign), _set_response_format(request, body, notes)))
    )
    turns = foreign.escape_turns(turns, len(request.feedback))
    turns, repeats = hint_turns(request, "native", turns, sent)
    body["messages"] = _encode_messages(request, turns, order, sent)
    own = {other: name for name, other in sent.items()}
    return PreparedRequest(
        body,
        (*notes, *repairs, *placed, *repeats, *foreign.notes),
        own,
        restore=foreign.restore,
        repeat_action=request.repeat_action("native"),
    )


# --- the tools -------------------------------------------------------------------------------------------------------


def _set_tools(
    request: ToolRequest, body: dict[str, Any], sent: Mapping[str, str], notes: list[str], foreign: ForeignEscaper
) -> str:
    """Set `tools`, `tool_choice` and `parallel_tool_calls` in `body`.

    Returns an instruction for the prompt if the server cannot enforce `tool_choice`, else an empty string.
    """
    supported = request.profile.tool_choice
    kind = request.choice.kind
    formatted = request.json_answer and not request.profile.format_beside_tools
    # On Ollama, models make calls under `none` as well (ollama#17921).
    if kind == "none" and ("none" not in supported or formatted):
        if len(request.tools):
            why = "the server ignores it" if "none" not in supported else "beside them it cannot force response_format"
            notes.append(f"tool_choice none: no tools were sent, since {why}")
        return ""
    tools = request.tools if kind == "none" else request.offered
    if kind == "named" and "named" in supported:
        tools = request.tools
    offered: list[Any] = tools.payloads
    changed = bool(sent) or request.profile.relax_schema or not request.profile.strict_tools
    if changed:
        offered = [_encode_tool(tool, tools, request.profile, sent, notes) for tool in offered]
    if request.other_tools and (kind != "named" or "named" in supported):
        offered, changed = [*offered, *request.other_tools], True
    if not offered:
        return ""
    body["tools"] = foreign.escape_tools(offered, None if changed else tools)
    if "parallel_tool_calls" in request.body and request.profile.parallel_tool_calls:
        body["parallel_tool_calls"] = request.body["parallel_tool_calls"]
    return _set_tool_choice(request, body, sent, notes)


def _set_tool_choice(request: ToolRequest, body: dict[str, Any], sent: Mapping[str, str], notes: list[str]) -> str:
    """Set `tool_choice` as far as the server supports it; if it cannot be set, return an instruction for the prompt.

    If the server cannot force a named tool, only that tool is offered, and `required` is sent. If the server does not
    support `required` either, an instruction is returned.
    """
    supported = request.profile.tool_choice
    kind, name = request.choice.kind, request.choice.name
    if kind == "named" and name is not None and "named" in supported:
        body["tool_choice"] = {"type": "function", "function": {"name": sent.get(name, name)}}
        return ""
    # LM Studio answers 400 to a named tool, "Invalid tool_choice type" (lmstudio-bug-tracker#670).
    if request.choice.forced and "required" in supported:
        body["tool_choice"] = "required"
        if kind == "named":
            notes.append(f"tool_choice {name!r} was sent as 'required' with that tool alone")
        return ""
    if request.choice.forced:
        notes.append(f"tool_choice {kind} was put into the prompt: the server does not force it as it should")
        which = f"the tool {sent.get(name, name)}" if name else "one of the tools"
        return f"Call {which} now; do not answer in plain text."
    if kind == "none" or ("auto" in supported and request.body.get("tool_choice") == "auto"):
        body["tool_choice"] = kind
    return ""


def _set_response_format(request: ToolRequest, body: dict[str, Any], notes: list[str]) -> str:
    """Remove a `response_format` that would make calls impossible; return an instruction in its place, if any."""
    if not (body.get("tools") and request.json_answer) or request.profile.format_beside_tools:
        return ""
    # On Ollama and llama.cpp the grammar of the format leaves no room for a call (ollama#13750).
    del body["response_format"]
    if request.choice.forced:
        return ""
    notes.append("response_format was put into the prompt: enforced, no call would be possible")
    return describe_answer_format(request)


def _encode_tool(
    tool: dict[str, Any], tools: Tools, profile: Profile, sent: Mapping[str, str], notes: list[str]
) -> dict[str, Any]:
    """Encode a tool with a name and a schema that the server accepts."""
    name = tool["function"]["name"]
    tool = rename_tool(tool, sent)
    if not profile.strict_tools and "strict" in tool["function"]:
        tool = {**tool, "function": {key: value for key, value in tool["function"].items() if key != "strict"}}
    if not profile.relax_schema:
        return tool
    function = tool["function"]
    # One unanchored pattern fails every request on llama.cpp (llama.cpp#26930); Ollama refuses a list of types.
    schema, changes = tools.relaxed(name)
    if changes:
        notes.append(f"the schema of {function['name']!r} was relaxed: {', '.join(changes)}")
    return {**tool, "function": {**function, "parameters": schema}}


# --- the conversation ------------------------------------------------------------------------------------------------


def _encode_messages(
    request: ToolRequest, turns: list[Turn], instruction: str, sent: Mapping[str, str]
) -> list[Message]:
    """Encode the conversation. The images of consecutive results are sent in one message after the last of them."""
    profile, system = request.profile, ""
    joined = profile.alternate_roles or not profile.system_role or profile.system_place == "first"
    if instruction or request.system_prompt or joined:
        own, turns = split_system(turns)
        system = join_system(request, own, instruction)
    messages: list[Message] = []
    images: list[Any] = []
    for turn in turns:
        if images and turn.result is None:
            messages.append({"role": "user", "content": images})
            images = []
        messages.append(_encode_message(turn, profile, sent))
        images = [*images, *turn.attachments]
    if images:
        messages.append({"role": "user", "content": images})
    return fit_template(system, messages, profile)


def _encode_message(turn: Turn, profile: Profile, sent: Mapping[str, str]) -> Message:
    message = plain_message(turn, profile)
    if turn.result is not None:
        message.pop("is_error", None)  # a key of other APIs; strict servers refuse unknown keys
        return message | _encode_result(turn, turn.result, message, profile, sent)
    if turn.calls:
        raw_calls = [raw for raw in as_list(turn.message.get("tool_calls")) if is_object(raw)] or [{}]
        message["tool_calls"] = [
            _encode_call(raw, call, profile, sent) for raw, call in zip(raw_calls, turn.calls, strict=True)
        ]
    if turn.role == "assistant" and message.get("content") is None and not (turn.calls and profile.null_content):
        message["content"] = ""
    return message


def _encode_call(raw_call: dict[str, Any], call: Call, profile: Profile, sent: Mapping[str, str]) -> dict[str, Any]:
    """Encode a past call; unknown keys (such as signatures of reasoning) are kept."""
    arguments = call.arguments if profile.history_arguments == "object" else call.arguments_json
    function = {"name": sent.get(call.name, call.name), "arguments": arguments}
    rest = {key: value for key, value in raw_call.items() if key not in {"custom", "index"}}
    return {**rest, "id": _wire_id(call.id, profile), "type": "function", "function": function}


def _encode_result(turn: Turn, result: Result, message: Message, profile: Profile, sent: Mapping[str, str]) -> Message:
    """Encode a result as a message, without the result's images.

    No server accepts images in a tool message (vllm#43203), so the images are sent in a user message afterward.
    """
    content = message.get("content")
    if turn.attachments or not (isinstance(content, str) or (is_array(content) and profile.result_parts)):
        # LM Studio since 0.3.30 (lmstudio-bug-tracker#1077) and vLLM with gpt-oss (vllm#25001) want a string.
        content = result.content
    if turn.attachments:
        content = f"{content}\n{IMAGES_FOLLOW}" if content else IMAGES_FOLLOW
    encoded = {"role": "tool", "tool_call_id": _wire_id(result.call_id, profile), "content": content}
    return encoded | {"name": sent.get(result.name, result.name)} if "name" in message else encoded


def _wire_id(call_id: str, profile: Profile) -> str:
    # mistral-common under vLLM answers 400 to an id that is not nine alphanumerics (vllm#9019).
    return alnum9_id(call_id) if profile.tool_ids == "alnum9" else call_id
