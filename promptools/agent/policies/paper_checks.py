"""The checks of the paper's harness (HarmonyAgent), in its order; each has an exception of its name.

    finish reason, number of tokens, strict parse, channels, number of messages of reasoning, of calls, of finals,
    a call beside a final, the tool's name, the tool, the arguments' JSON, the arguments' keys

They are made of the messages of the raw reply where the server was asked in harmony mode. In any other mode a reply has
no such messages, and those that it amounts to are checked. A recipient is compared as the rest of promptools does, not
by its beginning: the paper's harness takes `container.execute` for `container.exec`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from promptools.agent.harness_errors import (
    HarmonyMessageMissingChannel,
    HarmonyParsingError,
    LongGeneration,
    MaxNewTokensExceeded,
    MultipleFinalMessages,
    MultipleReasoningMessages,
    MultipleToolCalls,
    NoToolCallNoFinalMessage,
    Submitted,
    ToolCallAndFinalMessage,
    ToolCallArgNotObject,
    ToolCallArgParsingError,
    ToolCallArgTypeError,
    ToolNameParsingError,
    UnexpectedFinishReason,
    UnknownToolCallArg,
    UnknownToolCalled,
)
from promptools.errors import clip
from promptools.harmony import examine
from promptools.harmony.recipients import FUNCTIONS
from promptools.harmony.renderer import Message
from promptools.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.agent.functions.toolbox import Toolbox
    from promptools.agent.loop.reply_collector import AccumulatedReply
    from promptools.agent.policies.reply_capture import HarmonyReply

_REASONS_OF_CALLS = frozenset({"tool_calls", "function_call"})
"""Finish reasons that are `stop` on the server's raw endpoint."""


def check_paper(
    reply: AccumulatedReply, written: HarmonyReply | None, toolbox: Toolbox, max_tokens: int | None
) -> None:
    """Raise the exception of the first check that fails; return for a reply with one call, raise `Submitted` else."""
    reason = written.finish_reason if written is not None else None
    _check_end(reason or reply.finish_reason, reply.usage, max_tokens)
    messages = _messages_of(reply) if written is None else parse_strictly(written.text)
    message = _check_messages(messages)
    if not message.recipient:
        raise Submitted("the model has answered", content=str(message.content))
    _check_call(message, toolbox)
    if not reply.calls:  # the exchange found no call where the strict parse did
        raise UnknownToolCalled(f"tool called: {clip(message.recipient)}, but it was not offered")


def _check_end(reason: str | None, usage: dict[str, Any] | None, max_tokens: int | None) -> None:
    if reason == "length":
        raise LongGeneration(f"the reply was cut off, finish_reason: {reason}, usage: {usage}")
    if reason is not None and reason != "stop" and reason not in _REASONS_OF_CALLS:
        raise UnexpectedFinishReason(f"unexpected finish_reason: {clip(reason)}")
    tokens = (usage or {}).get("completion_tokens")
    if max_tokens is not None and isinstance(tokens, int) and tokens >= max_tokens:
        raise MaxNewTokensExceeded(f"the reply has {tokens} tokens, of at most {max_tokens}")


def parse_strictly(text: str) -> list[Message]:
    """Parse a reply's text strictly. Raises `HarmonyParsingError`."""
    examination = examine(text)
    if examination.error is not None:
        raise HarmonyParsingError(f"the reply is not Harmony: {examination.error}; it is {clip(text)!r}")
    return [parsed.message for parsed in examination.messages]


def _messages_of(reply: AccumulatedReply) -> list[Message]:
    """Return the messages that a reply amounts to which was not read from Harmony."""
    messages = [Message("assistant", reply.reasoning, channel="analysis")] if reply.reasoning else []
    messages += (
        Message("assistant", call.arguments, channel="commentary", recipient=f"{FUNCTIONS}.{call.name}")
        for call in reply.calls
    )
    if reply.content.strip():
        messages.append(Message("assistant", reply.content, channel="final"))
    return messages


def _check_messages(messages: Sequence[Message]) -> Message:
    """Check the channels and numbers of messages; return the call or the final message."""
    if any(not message.channel for message in messages):
        raise HarmonyMessageMissingChannel("a message of the reply has no channel")
    calls = [message for message in messages if message.recipient]
    thoughts = [message for message in messages if message.channel == "analysis" and not message.recipient]
    finals = [message for message in messages if message.channel == "final" and not message.recipient]
    if len(thoughts) > 1:
        raise MultipleReasoningMessages(f"expected 1 reasoning message, got {len(thoughts)}")
    if len(calls) > 1:
        raise MultipleToolCalls(f"expected 1 tool call, got {len(calls)}")
    if len(finals) > 1:
        raise MultipleFinalMessages(f"expected 1 final message, got {len(finals)}")
    if calls and finals:
        raise ToolCallAndFinalMessage("a tool call and a final message are in one reply")
    if not calls and not finals:
        channels = [message.channel for message in messages]
        raise NoToolCallNoFinalMessage(
            f"no tool call and no final message in {len(messages)} messages, of channels {channels}"
        )
    return (calls or finals)[0]


def _check_call(call: Message, toolbox: Toolbox) -> None:
    name = call.recipient.removeprefix(f"{FUNCTIONS}.")
    if not name.strip():
        raise ToolNameParsingError(f"the recipient {call.recipient!r} names no tool")
    match = toolbox.tools.find(name)
    if match is None:
        raise UnknownToolCalled(f"tool called: {clip(name)}, available: {list(toolbox.tools.names)}")
    tool, text = match[0], str(call.content)
    if tool.free_text is not None and call.content_type == "code":
        return  # its body need not be JSON
    try:
        arguments: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolCallArgParsingError(f"failed to parse args for {tool.name}, args: {clip(text)!r}") from error
    if not is_object(arguments):
        raise ToolCallArgNotObject(f"the args for {tool.name} are no object: {clip(text)!r}")
    checked = toolbox.tools.check(tool, arguments)
    required: Any = tool.parameters.get("required") or []
    if set(required) - checked.arguments.keys():
        raise UnknownToolCallArg(
            f"unknown tool args for {tool.name}, got tool_args: {list(arguments)}, expected: {list(required)}"
        )
    if checked.errors:
        raise ToolCallArgTypeError(f"the args for {tool.name} do not fit: {' '.join(checked.errors)}")
