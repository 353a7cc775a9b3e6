"""Native mode: the server's own `tools`, adapted to what it accepts; its calls are checked like calls in text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from promptools.modes.foreign import foreign_to
from promptools.modes.form import answer_in_words
from promptools.modes.history import Turn, nine, read_history
from promptools.modes.messages import GAP, Message, place_system, plain, settle, take_system
from promptools.modes.mode import Upstream
from promptools.modes.names import mapped, rename_tool
from promptools.modes.reader import ReplyReader
from promptools.modes.request import passed_on
from promptools.wire.shapes import as_list, is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.modes.ask import Ask
    from promptools.modes.foreign import Foreign
    from promptools.profiles import Profile
    from promptools.schema import Tools
    from promptools.types import Call, ModeName, NewId, Result

IMAGES = "(The images of this result follow in the next message.)"


class Native:
    """Ask for tools with the API's own parameters, and read the server's structured calls."""

    name: Final[ModeName] = "native"

    def body(self, ask: Ask) -> Upstream:
        """Encode the request."""
        turns, mended = read_history(ask.messages)
        foreign = foreign_to(ask, dialect=None)
        names = [*ask.tools.names, *(call.name for turn in turns for call in turn.calls)]
        sent = mapped(names, ask.profile.tool_names)
        sent |= foreign.names(names, sent)
        notes = [f"the tool {name!r} was sent as {other!r}" for name, other in sent.items()]
        body = passed_on(ask)
        order = GAP.join(filter(None, (_offer(ask, body, sent, notes, foreign), _form(ask, body, notes))))
        body["messages"] = _messages(ask, foreign.turns(turns, len(ask.feedback)), order, sent)
        own = {other: name for name, other in sent.items()}
        return Upstream(body, (*notes, *mended, *foreign.notes), own, restore=foreign.restore)

    def reader(self, ask: Ask, upstream: Upstream, new_id: NewId) -> ReplyReader:
        """Return a reader of the server's calls, and of those that it left in the text."""
        return ReplyReader(ask, upstream, new_id)


# --- the tools -------------------------------------------------------------------------------------------------------


def _offer(ask: Ask, body: dict[str, Any], sent: Mapping[str, str], notes: list[str], foreign: Foreign) -> str:
    """Set `tools` and its companions; return the instruction that replaces a `tool_choice` the server ignores."""
    supported = ask.profile.tool_choice
    kind = ask.choice.kind
    formatted = ask.json_answer and not ask.profile.format_beside_tools
    if kind == "none" and ("none" not in supported or formatted):
        if len(ask.tools):
            why = "the server ignores it" if "none" not in supported else "beside them it cannot force response_format"
            notes.append(f"tool_choice none: no tools were sent, since {why}")
        return ""
    tools = ask.tools if kind == "none" else ask.offered
    if kind == "named" and "named" in supported:
        tools = ask.tools
    offered = [_tool(tool, tools, ask.profile, sent, notes) for tool in tools.to_openai()]
    if kind != "named" or "named" in supported:
        offered += ask.others
    if not offered:
        return ""
    body["tools"] = foreign.tools(offered)
    if "parallel_tool_calls" in ask.body and ask.profile.parallel_tool_calls:
        body["parallel_tool_calls"] = ask.body["parallel_tool_calls"]
    return _choose(ask, body, sent, notes)


def _choose(ask: Ask, body: dict[str, Any], sent: Mapping[str, str], notes: list[str]) -> str:
    """Set `tool_choice` as far as the server supports it; return the instruction that replaces it where it does not.

    A named tool becomes `required` with that tool alone, and `required` becomes an instruction.
    """
    supported = ask.profile.tool_choice
    kind, name = ask.choice.kind, ask.choice.name
    if kind == "named" and name is not None and "named" in supported:
        body["tool_choice"] = {"type": "function", "function": {"name": sent.get(name, name)}}
        return ""
    if ask.choice.forced and "required" in supported:
        body["tool_choice"] = "required"
        if kind == "named":
            notes.append(f"tool_choice {name!r} was sent as 'required' with that tool alone")
        return ""
    if ask.choice.forced:
        notes.append(f"tool_choice {kind} was put into words: the server does not force it as it should")
        which = f"the tool {sent.get(name, name)}" if name else "one of the tools"
        return f"Call {which} now; do not answer in words."
    if kind == "none" or ("auto" in supported and ask.body.get("tool_choice") == "auto"):
        body["tool_choice"] = kind
    return ""


def _form(ask: Ask, body: dict[str, Any], notes: list[str]) -> str:
    """Return the instruction that replaces a `response_format` that would make calls impossible."""
    if not (body.get("tools") and ask.json_answer) or ask.profile.format_beside_tools:
        return ""
    del body["response_format"]
    if ask.choice.forced:
        return ""
    notes.append("response_format was put into words: enforced, no call would be possible")
    return answer_in_words(ask)


def _tool(
    tool: dict[str, Any], tools: Tools, profile: Profile, sent: Mapping[str, str], notes: list[str]
) -> dict[str, Any]:
    """Encode one tool, with a name and a schema that the server accepts."""
    name = tool["function"]["name"]
    tool = rename_tool(tool, sent)
    if not profile.relax_schema:
        return tool
    function = tool["function"]
    schema, changes = tools.relaxed(name)
    if changes:
        notes.append(f"the schema of {function['name']!r} was relaxed: {', '.join(changes)}")
    return {**tool, "function": {**function, "parameters": schema}}


# --- the conversation ------------------------------------------------------------------------------------------------


def _messages(ask: Ask, turns: list[Turn], order: str, sent: Mapping[str, str]) -> list[Message]:
    """Encode the conversation; images of results follow the last of consecutive results."""
    profile, system = ask.profile, ""
    if order or ask.system_prompt or profile.alternate_roles or not profile.system_role:
        own, turns = take_system(turns)
        system = place_system(ask, own, order)
    messages: list[Message] = []
    images: list[Any] = []
    for turn in turns:
        if images and turn.result is None:
            messages.append({"role": "user", "content": images})
            images = []
        messages.append(_message(turn, profile, sent))
        images = [*images, *turn.images]
    if images:
        messages.append({"role": "user", "content": images})
    return settle(system, messages, profile)


def _message(turn: Turn, profile: Profile, sent: Mapping[str, str]) -> Message:
    message = plain(turn, profile)
    if turn.result is not None:
        return message | _result(turn, turn.result, message, profile, sent)
    if turn.calls:
        raw_calls = [raw for raw in as_list(turn.message.get("tool_calls")) if is_object(raw)] or [{}]
        message["tool_calls"] = [
            _call(raw, call, profile, sent) for raw, call in zip(raw_calls, turn.calls, strict=True)
        ]
    if turn.role == "assistant" and message.get("content") is None and not (turn.calls and profile.null_content):
        message["content"] = ""
    return message


def _call(given: dict[str, Any], call: Call, profile: Profile, sent: Mapping[str, str]) -> dict[str, Any]:
    """Encode a past call; unknown keys (signatures of reasoning, for example) are kept."""
    arguments = call.arguments if profile.history_arguments == "object" else call.arguments_json
    function = {"name": sent.get(call.name, call.name), "arguments": arguments}
    rest = {key: value for key, value in given.items() if key not in {"custom", "index"}}
    return {**rest, "id": _id(call.id, profile), "type": "function", "function": function}


def _result(turn: Turn, result: Result, message: Message, profile: Profile, sent: Mapping[str, str]) -> Message:
    """Encode the keys of a result; no server accepts images in it (vllm#43203), so they follow in a user message."""
    content = message.get("content")
    if turn.images or not (isinstance(content, str) or (is_list(content) and profile.result_parts)):
        content = result.content
    if turn.images:
        content = f"{content}\n{IMAGES}" if content else IMAGES
    encoded = {"role": "tool", "tool_call_id": _id(result.call_id, profile), "content": content}
    return encoded | {"name": sent.get(result.name, result.name)} if "name" in message else encoded


def _id(said: str, profile: Profile) -> str:
    return nine(said) if profile.tool_ids == "alnum9" else said
