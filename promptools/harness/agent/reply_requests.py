"""Request replies until one is usable. If the prompt does not fit into the context, shorten the conversation first.

A failed attempt leaves nothing in the conversation. If the policy shows errors, the next prompt ends with the failed
reply and its error. If the reply has calls, the error is given as the result of each call; if it has none, the error is
given in a user message. Parts of the reply that cannot be written as a message are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.dialects import using_own
from promptools.dialects.own_dialects import OwnDialects, read_own
from promptools.engine import parse
from promptools.errors import Exhausted, ModelError, PromptoolsError, clip
from promptools.fallback import RetryPolicy, classify, read_overflow
from promptools.harness.agent.compaction import Compactor, size
from promptools.harness.agent.conversation import (
    for_request,
    has_images,
    images_after_results,
    may_refuse_images,
)
from promptools.harness.agent.harness_errors import (
    HarnessError,
    LimitsExceeded,
    MaxContextWindowOverflow,
    NonTerminatingError,
    RetrialsExceeded,
    Submitted,
)
from promptools.harness.agent.loop_effects import AccumulatedReply, LoopEffect, Pause, RequestReply
from promptools.harness.agent.policies import as_harness_error, check_default, check_paper, failed_usage
from promptools.harness.agent.run_events import CompactionEvent, RetryEvent
from promptools.harness.agent.run_limits import LimitTracker
from promptools.numbers import as_count

if TYPE_CHECKING:
    from promptools.harness.agent.compaction import Compaction, ContextCapture
    from promptools.harness.agent.conversation import Conversation
    from promptools.harness.agent.policies import AgentPolicy, ReplyCapture
    from promptools.harness.agent.toolbox import Toolbox


SHOWN = 2000
"""Maximum number of characters of a failed reply that the next prompt shows."""


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """The settings for requesting replies."""

    create: dict[str, Any]
    """Keyword arguments for the client's `create` in every request, besides the messages and tools."""
    policy: AgentPolicy
    compaction: Compaction | None = None
    capture: ReplyCapture | None = None
    """The observer that keeps the last raw reply; None for a run without observers, as in `run_tools`."""
    context_capture: ContextCapture | None = None
    """The observer that keeps the size of the context and of the last prompt; None for a run without observers."""
    clock: Callable[[], float] = lambda: 0.0
    marks: bool = False
    """Whether tools are declared with their marks: promptools' own facts about a tool, such as aliases of parameters.
    Only promptools' clients read marks, so this is also used to tell whether the client is promptools' own."""
    dialects: OwnDialects = field(default_factory=partial(read_own, ()))
    """The dialects (formats of calls) that the app or the config defines, if the client has any."""


class ReplyRequester:
    """Requests the replies of one run."""

    def __init__(
        self, settings: RequestSettings, conversation: Conversation, toolbox: Toolbox, tracker: LimitTracker
    ) -> None:
        self._settings = settings
        self._create: dict[str, Any] = settings.create
        self._conversation = conversation
        self._toolbox = toolbox
        self._tracker = tracker
        self._images_accepted = False
        self._last_prompt: dict[str, int] = {}
        self._last_tokens: int | None = None
        self._tools = toolbox.payloads(marks=settings.marks)
        compaction = settings.compaction
        self._compactor = (
            Compactor(compaction, conversation, self._ask_summary, settings.context_capture) if compaction else None
        )

    def request(self) -> Generator[LoopEffect, Any, tuple[AccumulatedReply, tuple[RetryEvent, ...]]]:
        """Request replies until one is usable; return the reply, and an event for each attempt that failed before it.

        Raises a `TerminatingError` if the run cannot go on.
        """
        policy, clock = self._settings.policy, self._settings.clock
        attempts = RetryPolicy(clock(), stop=policy.stop or _stop_after(policy.attempts), wait=policy.wait)
        retries: list[RetryEvent] = []
        feedback: list[dict[str, Any]] = []
        while True:
            temperature = policy.temperature(len(retries), self._create.get("temperature"), self._context_used)
            reply, failure = yield from self._attempt(feedback, temperature)
            attempts.count_attempt()
            self._conversation.add_usage(reply.usage)
            failure = failure or self._failure(reply)
            if failure is None:
                return reply, tuple(retries)
            pause = attempts.next_wait(clock())
            event = RetryEvent(len(retries) + 1, type(failure).__name__, str(failure), reply.usage)
            if isinstance(pause, str):
                raise RetrialsExceeded(
                    f"failed after {event.attempt} attempts, last exception: {event.error}: {failure}"
                ) from failure
            retries.append(event)
            yield event
            if pause:
                yield Pause(pause)
            feedback = _error_messages(reply, failure) if policy.show_errors else []

    @property
    def _context_used(self) -> float:
        """The share of the context that the last prompt filled; 0 if unknown."""
        captured, compaction = self._settings.context_capture, self._settings.compaction
        size = (compaction and compaction.context) or (captured and captured.size)
        return self._last_tokens / size if self._last_tokens and size else 0.0

    def relax_tool_choice(self) -> None:
        """Replace a forced `tool_choice` with `auto`, since a model that must call a tool can never answer."""
        if self._create.get("tool_choice") not in (None, "auto", "none"):
            self._create = {**self._create, "tool_choice": "auto"}

    def _attempt(
        self, feedback: list[dict[str, Any]], parameters: dict[str, Any]
    ) -> Generator[LoopEffect, Any, tuple[AccumulatedReply, NonTerminatingError | None]]:
        """Request a reply; return `(reply, None)`.

        If the exchange failed and the failure is the model's fault, return an empty reply and the error.
        """
        try:
            return (yield from self._request_fitting(feedback, parameters)), None
        except (Exhausted, ModelError) as error:
            failure = None if self._settings.policy.checks == "none" else as_harness_error(error)
            if failure is None:
                raise
            captured = self._settings.capture
            return AccumulatedReply(usage=failed_usage(error) or (captured.usage if captured else None)), failure

    def _failure(self, reply: AccumulatedReply) -> NonTerminatingError | None:
        """Return the error that makes a reply unusable, or None if the reply is usable.

        If a check raises `Submitted`, the exception's content becomes the reply's content, and the reply's calls are
        dropped.
        """
        try:
            self._check(reply)
        except Submitted as answer:
            reply.content, reply.calls = answer.content, []
        except NonTerminatingError as error:
            return error
        return None

    def _check(self, reply: AccumulatedReply) -> None:
        match self._settings.policy.checks:
            case "paper":
                captured = self._settings.capture.last if self._settings.capture else None
                maximum: int | None = self._create.get("max_tokens") or self._create.get("max_completion_tokens")
                check_paper(reply, captured, self._toolbox, maximum)
            case "default":
                check_default(reply)
            case _:
                pass

    def _request_fitting(
        self, feedback: list[dict[str, Any]], parameters: dict[str, Any]
    ) -> Generator[LoopEffect, Any, AccumulatedReply]:
        """Request a reply. If the prompt does not fit, shorten the conversation; if images are refused, drop them."""
        if self._compactor and self._compactor.is_due:
            yield from self._compactor.compact()
        offered = {"tools": self._tools} if self._tools else {}
        while True:
            messages = [*self._conversation.messages, *feedback]
            sent = messages if self._settings.marks else images_after_results(messages)
            body = {**self._create, **parameters, **offered, "messages": sent}
            if self._settings.marks:
                body = for_request(body, {"written": self._conversation.written, "last_prompt": self._last_prompt})
            try:
                reply: AccumulatedReply = yield from self._send(body)
            except Exception as error:  # whatever a client raises
                if is_overflow(error):
                    yield from self._shorten_after(error, size(messages))
                elif self._images_refused(error):
                    yield from self._drop_images()
                else:
                    raise
                continue
            self._images_accepted = self._images_accepted or has_images(messages)
            captured = self._settings.capture.last if self._settings.capture else None
            reply.written = captured.text if captured else ""
            self._last_prompt = self._settings.context_capture.last_prompt if self._settings.context_capture else {}
            self._last_tokens = self._prompt_tokens(reply)
            if self._compactor:
                self._compactor.learn(self._last_tokens, size(messages))
            return reply

    def _images_refused(self, error: Exception) -> bool:
        """Return whether the images in the conversation may have caused a failure.

        Images are not suspected once the server has accepted a request with images in this run.
        """
        unproved = not self._images_accepted and has_images(self._conversation.messages)
        return unproved and not isinstance(error, HarnessError) and may_refuse_images(error)

    def _drop_images(self) -> Generator[LoopEffect, Any, None]:
        before = size(self._conversation.messages)
        self._conversation.drop_images()
        yield CompactionEvent("images", before, size(self._conversation.messages))

    def _prompt_tokens(self, reply: AccumulatedReply) -> int | None:
        """Return the number of tokens in the prompt that led to `reply`; None if the server did not count them."""
        captured = self._settings.context_capture
        return (captured and captured.prompt_tokens) or as_count((reply.usage or {}).get("prompt_tokens"))

    def _send(self, body: dict[str, Any], *, quiet: bool = False) -> Generator[LoopEffect, Any, AccumulatedReply]:
        self._tracker.check_request(self._conversation.usage)
        left = self._tracker.seconds_left
        if left is not None and body.get("timeout") is None:
            body["timeout"] = left
        try:
            reply: AccumulatedReply = yield RequestReply(body, quiet)
            return reply
        except HarnessError:
            raise
        except Exception as error:
            left = self._tracker.seconds_left
            if left is not None and left <= 0:
                limit = self._tracker.limits.seconds
                raise LimitsExceeded(f"the limit of {limit:g} seconds is used up", limit="seconds") from error
            raise

    def _shorten_after(self, error: Exception, characters: int) -> Generator[LoopEffect, Any, None]:
        numbers = read_overflow(str(error))
        if self._compactor:
            self._compactor.learn(numbers.prompt, characters, numbers.context)
            if (yield from self._compactor.compact()):
                return
        what = "and there is nothing left to make shorter" if self._compactor else "and compaction is off"
        raise MaxContextWindowOverflow(
            f"the context of the model is exceeded, {what}: {clip(str(error), 400)}"
        ) from error

    def _ask_summary(self, messages: list[dict[str, Any]]) -> Generator[LoopEffect, Any, str]:
        """Request a summary and return it; return an empty text if even this request does not fit into the context.

        Text that would be read as a call is removed from the summary. Otherwise the next prompt would contain it, and
        the same call in a later reply would be mistaken for a quotation from the prompt.
        """
        dropped = {"tool_choice", "parallel_tool_calls", "response_format"}
        body = {key: value for key, value in self._create.items() if key not in dropped}
        try:
            reply = yield from self._send({**body, "messages": messages}, quiet=True)
        except Exception as error:
            if is_overflow(error):
                return ""
            raise
        self._conversation.add_usage(reply.usage)
        with using_own(self._settings.dialects):
            parsed = parse(reply.content, list[Any](self._tools))
        return (parsed.content if parsed.calls else reply.content).strip()


def is_overflow(error: Exception) -> bool:
    """Return whether an error means that the server refused a prompt because it does not fit into the context."""
    if "context_length_exceeded" in (getattr(error, "kind", ""), getattr(error, "code", "")):
        return True
    return not isinstance(error, PromptoolsError) and classify(str(error)) == "overflow"


def _stop_after(attempts: int) -> Callable[[Any], bool]:
    return lambda state: state.attempt_number >= attempts


def _error_messages(reply: AccumulatedReply, error: NonTerminatingError) -> list[dict[str, Any]]:
    """Return a failed reply and its error as messages for the next prompt."""
    description = f"{type(error).__name__}: {error}"
    if reply.calls:
        ids = [call.id or f"failed{number:03}" for number, call in enumerate(reply.calls)]
        message = reply.message(reasoning=False)
        message["tool_calls"] = [{**call, "id": own} for call, own in zip(message["tool_calls"], ids, strict=True)]
        results = ({"role": "tool", "tool_call_id": own, "content": f"Error: not run. {description}"} for own in ids)
        return [message, *results]
    text = reply.content.strip()
    shown = [{"role": "assistant", "content": clip(text, SHOWN)}] if text else []
    return [*shown, {"role": "user", "content": f"Your last reply could not be used. {description}. Reply again."}]
