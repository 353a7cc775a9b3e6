"""Policies decide which replies are used, how many are requested, and whether the model is shown its errors.

`AgentPolicy` holds the settings. This module also has two sets of checks. The checks of the default policy work in any
mode. The checks of the paper's harness (HarmonyAgent) need the raw reply, which an observer keeps. Another reply is
also requested if an exchange (a request of the agent, with all requests to the server that it leads to) fails with an
error that is the model's fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from promptools.errors import Exhausted, ModelError, UsageError, clip
from promptools.fallback import Stop, WaitFor
from promptools.harmony import examine
from promptools.harmony.recipients import FUNCTIONS
from promptools.harmony.renderer import Message
from promptools.harness.agent.harness_errors import (
    HarmonyMessageMissingChannel,
    HarmonyParsingError,
    LongGeneration,
    MaxNewTokensExceeded,
    MultipleFinalMessages,
    MultipleReasoningMessages,
    MultipleToolCalls,
    NonTerminatingError,
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
from promptools.json_values import is_object
from promptools.wire.chat_encoder import CUT_OFF_REASONS, add_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received
    from promptools.harness.agent.loop_effects import AccumulatedReply
    from promptools.harness.agent.toolbox import Toolbox


# Policies.


Checks: TypeAlias = Literal["default", "paper", "none"]
PolicyName: TypeAlias = Literal["default", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPolicy:
    """Decides which replies a run uses, and what happens after a reply that cannot be used.

    `checks` is one of:

    - `"default"`, for any mode. A reply that is empty or cut off is requested again. A reply may make several calls. If
      a reply has a call and text, the call is run. A faulty call is not run, and gets its error as its result.
    - `"paper"`. The conditions of the paper's harness (HarmonyAgent) are checked, in the paper's order. In harmony
      mode, one of the conditions is that the reply is strict Harmony.
    - `"none"`. Every reply is used unchanged.
    """

    checks: Checks = "default"
    attempts: int = 10
    """Maximum number of replies that are requested for one step."""
    stop: Stop | None = None
    """A stop condition from the tenacity library, such as `stop_after_delay(60)`. It replaces `attempts`."""
    wait: WaitFor | None = None
    """A wait strategy from the tenacity library, such as `wait_fixed(2)`, used between attempts. None means no wait."""
    show_errors: bool = True
    """Whether the next attempt shows the model its failed reply and the error. If false, the same prompt is sent again,
    as in the paper. Either way, nothing of a failed attempt stays in the conversation."""
    temperatures: tuple[float, ...] = ()
    """The temperature of each attempt; further attempts use the last one. If empty, the request's temperature is
    used."""
    cooling: float = 0.0
    """The fraction by which the temperature is lowered when the context is full.

    With 0.5, a full context halves the temperature, and a half-full context lowers it by a quarter. The paper's code
    uses 0.5. If the size of the context is unknown, the temperature stays the same.
    """
    harmony_react: bool = False
    """Whether harmony mode works as in the article on HarmonyReAct: each reply begins in the `analysis` channel, and
    the model is asked to correct faulty replies."""
    family: str | None = None
    """The model family that the policy is for. A run raises `UsageError` if its model is known to belong to a different
    family. None means any family."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """promptools options for each request. They are used only if the client is one of promptools' clients."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UsageError(f"AgentPolicy.attempts is {self.attempts!r}; at least one reply must be requested")
        if not 0 <= self.cooling <= 1:
            raise UsageError(f"AgentPolicy.cooling is {self.cooling!r}; expected a share between 0 and 1")

    @property
    def request_options(self) -> dict[str, Any]:
        """The promptools options of each request.

        Unless `checks` is `"none"`, the options select those settings in the model's profile that are meant for agents.
        """
        own: dict[str, Any] = {} if self.checks == "none" else {"agent": True}
        own |= {} if self.family is None else {"family": self.family}
        if not self.harmony_react:
            return {**own, **self.options}
        kept = {key: value for key, value in self.options.items() if key != "corrections"}
        return {**own, "harmony_react": True, "prefill": "channel", **kept}

    def temperature(self, attempt: int, given: float | None = None, used: float = 0.0) -> dict[str, float]:
        """Return the sampling parameters of an attempt: `{"temperature": ...}`, or `{}` to keep the given temperature.

        `attempt` is counted from 0, `given` is the temperature of the request, and `used` is the share of the context
        that the last prompt filled.
        """
        lost = self.cooling * min(used, 1.0)
        if self.temperatures:
            return {"temperature": self.temperatures[min(attempt, len(self.temperatures) - 1)] * (1 - lost)}
        return {"temperature": (1.0 if given is None else given) * (1 - lost)} if lost else {}


def _two_seconds(_: object) -> float:
    return 2.0


DEFAULT_POLICY = AgentPolicy()
PAPER_POLICY = AgentPolicy(
    checks="paper",
    wait=_two_seconds,
    family="gpt-oss",
    options={"mode": "harmony", "tools_in": "auto", "thoughts": "keep", "corrections": 0, "on_repeat": "off"},
)
"""The policy of the paper's harness (HarmonyAgent), except that the model is shown its errors. To hide them as in the
paper, use `replace(PAPER_POLICY, show_errors=False)`."""
UNCHECKED_POLICY = AgentPolicy(checks="none")
_POLICIES: dict[str, AgentPolicy] = {"default": DEFAULT_POLICY, "paper": PAPER_POLICY}


def find_policy(policy: AgentPolicy | str) -> AgentPolicy:
    """Return the policy with this name; return an `AgentPolicy` unchanged. Raises `UsageError` for an unknown name."""
    if isinstance(policy, AgentPolicy):
        return policy
    if policy not in _POLICIES:
        raise UsageError(f"there is no policy {policy!r}; there are {', '.join(map(repr, _POLICIES))} and AgentPolicy")
    return _POLICIES[policy]


# The checks of the default policy, for any mode: a reply that is cut off or empty cannot be used.


_REFUSED = frozenset({"content_filter", "error"})
"""Finish reasons after which requesting another reply would not help."""


def check_default(reply: AccumulatedReply) -> None:
    """Raise an exception for a reply that cannot be used. Complete calls are used even if the reply was cut off."""
    if reply.finish_reason in _REFUSED:
        raise UnexpectedFinishReason(f"unexpected finish_reason: {reply.finish_reason}")
    if reply.calls:
        return
    if reply.finish_reason in CUT_OFF_REASONS:
        raise LongGeneration(f"the reply was cut off, finish_reason: {reply.finish_reason}, usage: {reply.usage}")
    if not reply.content.strip():
        raise NoToolCallNoFinalMessage("the reply holds no tool call, and no text for the user")


# The checks of the paper's harness (HarmonyAgent), in its order. Each check has its own exception.
#
#     finish reason, number of tokens, strict parse, channels, number of messages of reasoning, of calls, of finals,
#     a call beside a final, the tool's name, the tool, the arguments' JSON, the arguments' keys
#
# In harmony mode, the messages of the raw reply are checked. In any other mode a reply has no such messages, so the
# messages that correspond to it are checked. Recipients are compared as in the rest of promptools. The paper's harness
# compares only their beginning, and takes `container.execute` for `container.exec`.


_REASONS_OF_CALLS = frozenset({"tool_calls", "function_call"})
"""Finish reasons that servers report for replies with calls. They are accepted like `stop`, which the server's raw
endpoint would report for such replies."""


def check_paper(
    reply: AccumulatedReply, written: HarmonyReply | None, toolbox: Toolbox, max_tokens: int | None
) -> None:
    """Apply the paper's checks in order; raise the exception of the first check that fails.

    `written` is the raw reply in harmony mode, and None in other modes. If all checks pass, the function returns
    normally for a reply with a call, and raises `Submitted` for an answer.
    """
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
    """Parse the text of a reply strictly as Harmony, and return its messages. Raises `HarmonyParsingError`."""
    examination = examine(text)
    if examination.error is not None:
        raise HarmonyParsingError(f"the reply is not Harmony: {examination.error}; it is {clip(text)!r}")
    return [parsed.message for parsed in examination.messages]


def _messages_of(reply: AccumulatedReply) -> list[Message]:
    """Return the Harmony messages that correspond to a reply in another format."""
    messages = [Message("assistant", reply.reasoning, channel="analysis")] if reply.reasoning else []
    messages += (
        Message("assistant", call.arguments, channel="commentary", recipient=f"{FUNCTIONS}.{call.name}")
        for call in reply.calls
    )
    if reply.content.strip():
        messages.append(Message("assistant", reply.content, channel="final"))
    return messages


def _check_messages(messages: Sequence[Message]) -> Message:
    """Check the channels and the number of messages; return the message with the call, or the final message."""
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
        raise ToolCallArgNotObject(f"the args for {tool.name} are not an object: {clip(text)!r}")
    checked = toolbox.tools.check(tool, arguments)
    required: Any = tool.parameters.get("required") or []
    unknown = checked.arguments.keys() - toolbox.parameters(tool.name)
    if unknown or set(required) - checked.arguments.keys():
        raise UnknownToolCallArg(
            f"unknown tool args for {tool.name}, got tool_args: {list(arguments)}, expected: {list(required)}"
            + (f"; there is no {', '.join(sorted(map(clip, unknown)))}" if unknown else "")
        )
    if checked.errors:
        raise ToolCallArgTypeError(f"the args for {tool.name} do not fit: {' '.join(checked.errors)}")


# An observer that keeps the raw text of the last reply in harmony mode.


@dataclass(frozen=True, slots=True)
class HarmonyReply:
    """A reply as the model wrote it. `text` includes the beginning of the reply if the prompt already contained it."""

    text: str
    finish_reason: str | None
    """The finish reason as the server reported it."""


class ReplyCapture:
    """An observer of one run that keeps the last reply as the model wrote it.

    It relies on the fact that a run sends one request at a time.
    """

    def __init__(self) -> None:
        self.last: HarmonyReply | None = None
        """The last reply; None if it was not requested in harmony mode."""
        self.usage: dict[str, Any] | None = None
        """Token usage of all attempts at the last request, added up."""
        self._prefill = ""

    def began(self, exchange: ObservedExchange) -> None:  # noqa: ARG002 - the protocol's
        """Forget the previous reply."""
        self.last = self.usage = None

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:  # noqa: ARG002
        """Record the prefill: the beginning of the reply, if the prompt already contains it."""
        self._prefill = sent.prepared.prefill if sent.prepared is not None else ""

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Do nothing, because `ended` receives the complete reply."""

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:  # noqa: ARG002
        """Record the reply to the last attempt, and the token usage of all attempts."""
        for one in end.attempts:
            self.usage = add_usage(self.usage, one.attempt.usage)
        last = end.attempts[-1] if end.attempts else None
        if last is not None and last.attempt.mode == "harmony" and last.written:
            written = last.written[0]
            self.last = HarmonyReply(self._prefill + written.text, written.finish_reason)


# Errors of the exchange that are the model's fault. Like a failed check, they lead to a request for another reply.


KINDS: Mapping[str, type[NonTerminatingError]] = MappingProxyType(
    {
        "truncated": LongGeneration,
        "harmony": HarmonyParsingError,
        "server_parser": HarmonyParsingError,
        "swallowed": NoToolCallNoFinalMessage,
        "empty_calls": NoToolCallNoFinalMessage,
        "choice": NoToolCallNoFinalMessage,
        "unknown_tool": UnknownToolCalled,
        "malformed": ToolCallArgParsingError,
    }
)
"""The exception for each error that is the model's fault, by the error's code. After such an error, another reply may
succeed. Errors with other codes are the server's fault."""


def as_harness_error(error: Exception) -> NonTerminatingError | None:
    """Return the `NonTerminatingError` for a failed request; None if the failure is not the model's fault.

    `error` is what the client raised. It becomes the cause of the returned exception.
    """
    if not isinstance(error, (Exhausted, ModelError)):
        return None
    kind = KINDS.get(str(getattr(error.__cause__, "code", "")))
    if kind is None:
        return None
    made = kind(str(error))
    made.__cause__ = error
    return made


def failed_usage(error: Exception) -> dict[str, Any] | None:
    """Return the total tokens of the failed attempts that an error lists; None if the error lists no tokens."""
    total: dict[str, Any] | None = None
    for attempt in error.attempts if isinstance(error, Exhausted) else ():
        total = add_usage(total, attempt.usage)
    return total
