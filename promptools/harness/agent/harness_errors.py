"""The exceptions of an agent's run, named as in the paper on gpt-oss' harness (HarmonyAgent).

    HarnessError
    ├── NonTerminatingError   the reply cannot be used: another one is requested
    └── TerminatingError      the run is over

Under `policy="paper"`, each exception is raised on the condition that the paper states. docs/tasks/run-an-agent.md
lists these conditions. A `NonTerminatingError` leaves the run only as the cause of `RetrialsExceeded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from promptools.errors import ModelError, PromptoolsError

if TYPE_CHECKING:
    from promptools.harness.agent.run_events import Transcript

LimitName: TypeAlias = Literal["steps", "tokens", "seconds", "failures", "repeats"]


class HarnessError(PromptoolsError):
    """Base class of the exceptions of a run."""


class NonTerminatingError(HarnessError):
    """A reply cannot be used; another one is requested."""


class TerminatingError(HarnessError):
    """A run is over; `transcript` holds the conversation so far."""

    def __init__(self, message: str, *, transcript: Transcript | None = None) -> None:
        super().__init__(message)
        self.transcript = transcript


# --- the reply cannot be used ----------------------------------------------------------------------------------------


class LongGeneration(NonTerminatingError):
    """The reply was cut off at its maximum number of tokens."""


class HarmonyParsingError(NonTerminatingError):
    """The text of the reply does not strictly follow the Harmony format."""


class HarmonyMessageMissingChannel(NonTerminatingError):
    """A Harmony message of the reply has no channel, such as `analysis` or `final`."""


class MultipleReasoningMessages(NonTerminatingError):
    """The reply contains more than one reasoning message."""


class MultipleToolCalls(NonTerminatingError):
    """The reply contains more than one call."""


class MultipleFinalMessages(NonTerminatingError):
    """The reply contains more than one final message."""


class ToolCallAndFinalMessage(NonTerminatingError):
    """The reply contains both a call and a final message."""


class NoToolCallNoFinalMessage(NonTerminatingError):
    """The reply contains neither a call nor a final message."""


class ToolNameParsingError(NonTerminatingError):
    """The call names no tool."""


class UnknownToolCalled(NonTerminatingError):
    """The call names a tool that does not exist."""


class ToolCallArgParsingError(NonTerminatingError):
    """The arguments of the call are not JSON."""


class UnknownToolCallArg(NonTerminatingError):
    """The call lacks a required argument, or has an unknown one."""


class ExecutionTimeoutError(NonTerminatingError):
    """A tool took too long. The model reads `observation`, or the error's message if `observation` is empty.

    This text becomes the result of the call, and the run goes on. This is the only `NonTerminatingError` after which
    the reply is not requested again. Under the paper's checks, promptools' own tools raise this error. Any other tool
    may raise it too.
    """

    def __init__(self, message: str, *, observation: str = "") -> None:
        super().__init__(message)
        self.observation = observation


class ToolCallArgNotObject(NonTerminatingError):
    """The arguments of the call are JSON, but not an object. The paper has no name for this error."""


class ToolCallArgTypeError(NonTerminatingError):
    """An argument of the call does not conform to the tool's schema. The paper has no name for this error."""


# --- the run is over -------------------------------------------------------------------------------------------------


class Submitted(TerminatingError):
    """The model has answered with `content`. The run ends normally, and returns its transcript."""

    def __init__(self, message: str, *, content: str = "", transcript: Transcript | None = None) -> None:
        super().__init__(message, transcript=transcript)
        self.content = content


class LimitsExceeded(TerminatingError):
    """A limit of the run is reached; `limit` names it."""

    def __init__(self, message: str, *, limit: LimitName, transcript: Transcript | None = None) -> None:
        super().__init__(message, transcript=transcript)
        self.limit = limit


class IterationLimitError(LimitsExceeded, ModelError):
    """The last reply that was allowed still calls tools. These calls were not run."""

    def __init__(self, message: str, *, transcript: Transcript | None = None) -> None:
        super().__init__(message, limit="steps", transcript=transcript)
        self.reply = None


class MaxContextWindowOverflow(TerminatingError):
    """The conversation does not fit into the model's context."""


class UnexpectedFinishReason(TerminatingError):
    """The reply ended for a reason other than its natural end or its maximum length, such as a content filter."""


class MaxNewTokensExceeded(TerminatingError):
    """The reply reached its maximum number of tokens, but the server does not report that the reply was cut off."""


class RetrialsExceeded(TerminatingError):
    """No attempt at a step produced a usable reply. The error of the last attempt is the cause."""
