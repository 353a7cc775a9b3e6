"""Choose what to send in each attempt: which mode to use first, and what to change after a failure.

A plan consists of the current attempt (`mode`, and `request` with all adaptations so far) and the options left to try.
After a failure, `plan_next` takes the first remedy for this kind of failure (`REMEDIES`) that changes anything. A
remedy moves to the next mode, adapts the request, tells the model about its error (`correct`), or repeats the request.

A plan ends even without a stop policy, because each remedy uses something up: a mode, one of the allowed corrections,
the single repetition, or an adaptation. An adaptation is used once per mode. Only `tool_choice` and `without_params`
may be used a few times, because each time they change something else.

If a server refuses a request and then accepts it after a change (a rewording), `Refusals` remembers the change for an
hour. During that time, other requests that the server would refuse are changed before they are sent.

A circuit breaker excludes modes that failed lately with the same server and model. Every success is recorded. A failure
whose kind is in `COUNTED_KINDS` is recorded if the plan reacts with another mode, a repetition or nothing. A crash is
recorded only when another mode has succeeded: if every mode fails, the cause is the request (such as an image for a
model that accepts none) or the whole server. The breaker is ignored if the user forces a mode. It is also ignored if it
would leave no mode at all, because the others have failed lately or turn out to be impossible.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.exchange.rewording import NOT_REMEMBERED, adapt_request, another_sample, find_rewording, reword_known
from promptools.fallback import COUNTED_KINDS, LASTING_KINDS, REMEDIES, Adaptation, BreakerKey, Remedy, Rewording
from promptools.modes.registry import PREPARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange.context import Context
    from promptools.exchange.failures import Failure
    from promptools.fallback import FailureKind
    from promptools.modes.tool_request import ToolRequest
    from promptools.types import ModeName


ADAPTATION_NOTES: dict[Adaptation, str] = {
    "relax_schema": "with relaxed schemas",
    "tool_choice": "asking for less by `tool_choice`",
    "functions_only": "without the tools that are not functions",
    "ids": "with call ids of nine letters and digits",
    "object_history": "with past arguments as objects",
    "roles": "with roles that alternate",
    "no_reasoning": "without the reasoning parameters",
    "null_content": "with empty strings in place of null",
    "plain_content": "with content as plain strings",
    "no_stream_options": "without `stream_options`",
    "no_parallel": "without `parallel_tool_calls`",
    "system_first": "with one system message, at the beginning",
    "no_empty_tools": "without the empty list of tools",
    "without_params": "without parameters that the server does not take",
    "no_grammar": "without a grammar, with the call asked for in the prompt",
    "fit": "with a context that holds the prompt",
}
"""Maps each adaptation (a change to the request) to the words that follow "sent again" in the trace.

The adaptation `format` is not included, because it has a note of its own, `FORMAT_NOTE`.
"""
FORMAT_NOTE = "the answer is asked for again in its form, without tools"
_REPEATABLE: frozenset[Adaptation] = frozenset({"tool_choice", "without_params"})
"""Adaptations that may be applied several times, because each time they change something else in the request."""


def describe_adaptation(adaptation: Adaptation, what: Sequence[str] = ()) -> str:
    """Return words for the trace that describe an adaptation, such as `with relaxed schemas`."""
    if adaptation == "without_params" and what:
        return f"without what the server does not take ({', '.join(what)})"
    return ADAPTATION_NOTES[adaptation]


def _allows_harmony_last(request: ToolRequest, modes: Sequence[ModeName]) -> bool:
    """Return whether harmony mode may be tried last, although it is not among the request's modes."""
    return request.profile.harmony_last and request.profile.raw is not None and "harmony" not in modes


class AttemptPlan:
    """Holds the attempt to make now (`mode`, `request`), and decides on the next attempt after a failure."""

    def __init__(
        self,
        request: ToolRequest,
        modes: Sequence[ModeName],
        provider_model: tuple[str, str],
        context: Context,
        at: float,
    ) -> None:
        self.request = request
        self.notes: list[str] = []
        self._provider_model = provider_model
        self._context = context
        self._breaker = context.breaker
        self._corrections_left = request.options.max_corrections
        self._forced = request.options.mode is not None
        self._repeated = False
        self._adaptations_used: set[tuple[ModeName, Adaptation]] = set()
        self._said_otherwise: list[Rewording] = []
        self._unproven: list[tuple[FailureKind, Rewording]] = []
        """Changes to the request that the server has not accepted yet, each with the kind of failure that led to it."""
        self._harmony_left = _allows_harmony_last(request, modes) and not self._forced
        self._mode_before: ModeName | None = None
        self._modes_left = list(modes)
        self._skipped: list[ModeName] = []
        """The modes that the circuit breaker excluded, because they failed lately."""
        self._crashed: list[BreakerKey] = []
        """The breaker's keys for modes in which the server crashed; each crash is recorded if another mode works."""
        self._known_context: int | None = None
        self._apply_known_context(context.context_sizes.get(provider_model, at))
        self._apply_known_refusals(context.refusals.get(provider_model, at))
        self._uses_breaker = not self._forced
        self.mode: ModeName = self._pop_mode(at) or self._ignore_breaker(modes)

    def _apply_known_context(self, size: int | None) -> None:
        """Use the context size that promptools chose, or the server reported, during an earlier request."""
        if size is None:
            return
        if self.request.profile.raw == "completions":
            self.request = replace(self.request, profile=replace(self.request.profile, context=size))
        elif self.request.profile.num_ctx == "fit":
            self.request = replace(self.request, num_ctx=size)
            self._known_context = size

    def _apply_known_refusals(self, known: Sequence[Rewording]) -> None:
        """Change the request in the ways that earlier refusals showed to be necessary; add a note for each change."""
        if not known:
            return
        self.request, applied = reword_known(known, self.request)
        for rewording in applied:
            how = describe_adaptation(rewording.adaptation, rewording.what)
            self.notes.append(f"sent {how}: less than an hour ago the server refused it in another form")

    def note_known_context(self) -> None:
        """Add a note, only once, that this request uses the context size of an earlier request."""
        if self._known_context is not None:
            reason = "an earlier request needed it, and another makes the model load anew"
            self.notes.append(f"num_ctx {self._known_context} was asked for: {reason}")
        self._known_context = None

    @property
    def key(self) -> BreakerKey:
        """The circuit breaker's key: the provider, the model and the current mode."""
        return self._key(self.mode)

    @property
    def has_other_modes(self) -> bool:
        """Whether another mode is left to try, even one that the circuit breaker excluded."""
        return bool(self._modes_left or self._skipped)

    def _key(self, mode: ModeName) -> BreakerKey:
        return BreakerKey(*self._provider_model, mode)

    def for_single_choice(self, request: ToolRequest) -> AttemptPlan:
        """Return a copy of this plan, in its current state, for `request`, which asks for a single choice."""
        shared = {id(instance): instance for instance in (self._context, self._breaker)}
        plan = deepcopy(self, {**shared, id(self.request): request})
        plan.notes = []
        return plan

    def record_accepted(self, at: float) -> None:
        """Record that the server accepted the request; its rewordings are then used for later requests too."""
        for _, rewording in self._unproven:
            self._context.refusals.add(self._provider_model, rewording, at)
        self._unproven.clear()

    def record_success(self, at: float) -> None:
        """Record a usable reply in the current mode."""
        for key in self._crashed:
            if key != self.key:
                self._breaker.record_failure(key, at, why="crashed")
        self._breaker.record_success(self.key)
        if self.request.num_ctx is not None:
            self._context.context_sizes.put(self._provider_model, self.request.num_ctx, at)

    def record_failure(self, failure: Failure, at: float) -> None:
        """Record a failure with the circuit breaker, if its kind is in `COUNTED_KINDS`.

        A failure that feedback to the model may fix is not recorded. A crash is recorded later, if another mode
        succeeds.
        """
        if failure.kind not in COUNTED_KINDS or (failure.verdict is not None and failure.verdict.retry_with_feedback):
            return
        if failure.kind == "crashed":
            self._crashed.append(self.key)
            return
        self._breaker.record_failure(self.key, at, why=failure.kind, lasting=failure.kind in LASTING_KINDS)

    def plan_next(self, failure: Failure, at: float) -> str | None:
        """Choose what to send after a failure, and return a description of it; None if nothing is left to try."""
        if self._is_left_to_agent(failure):
            return None
        steps = REMEDIES[failure.kind]
        self._unproven = [pair for pair in self._unproven if pair[0] != failure.kind or set(steps) & _REPEATABLE]
        if failure.kind == "harmony" and self._harmony_left:
            self._harmony_left = False
            self._modes_left.append("harmony")
        for step in steps:
            description = self._apply(step, failure, at)
            if description:
                return description
        if "next" in steps:
            self.record_failure(failure, at)
        return self._return_to_mode_before(failure)

    def _is_left_to_agent(self, failure: Failure) -> bool:
        """Return whether to leave the retry to the agent that sent the request.

        Unless `harmony_react` is set, this is done for lost replies (`swallowed`) in harmony and raw mode, because the
        agent itself counts such replies, and tells the model what is wrong.
        """
        own = self.request.options.agent and not self.request.options.harmony_react
        return own and failure.kind == "swallowed" and failure.verdict is not None and self.mode in {"harmony", "raw"}

    def skip_mode(self, why: str, at: float) -> bool:
        """Replace the current mode, which cannot express this request; return False if no other mode may be tried."""
        raw = self.mode in {"harmony", "raw"} and not self._forced
        mode = (self._pop_mode(at) or self._pop_skipped_mode()) if raw else None
        if mode is None:
            return False
        self.notes.append(f"{self.mode} mode was passed over: {why}")
        self.mode = mode
        return True

    def _apply(self, step: Remedy, failure: Failure, at: float) -> str | None:
        match step:
            case "salvage":
                return None
            case "correct":
                return self._correct(failure)
            case "next":
                return self._next_mode(failure, at)
            case "again":
                return self._retry_same(failure, at)
            case _:
                return self._adapt(step, failure, at)

    def _correct(self, failure: Failure) -> str | None:
        verdict = failure.verdict
        if verdict is None or not verdict.retry_with_feedback or self._corrections_left < 1:
            return None
        if not (self.request.takes_calls or failure.kind == "format"):
            return None  # no turns are added to the conversation of an app without tools
        self._corrections_left -= 1
        self.request = self.request.with_feedback(verdict.feedback)
        return "the model is asked to correct it"

    def _adapt(self, step: Adaptation, failure: Failure, at: float) -> str | None:
        if step not in _REPEATABLE and (self.mode, step) in self._adaptations_used:
            return None
        if failure.kind == "timeout" and self._context.attempt_timeout is None:
            return None  # the client's own time is up, not just the time for one attempt
        rewording = None if step in NOT_REMEMBERED else find_rewording(step, self.request, failure)
        adapted = adapt_request(step, self.request, failure, self.mode)
        if adapted is None or rewording in self._said_otherwise:
            return None
        if adapted.profile.context != self.request.profile.context and adapted.profile.context is not None:
            self._context.context_sizes.put(self._provider_model, adapted.profile.context, at)
        self._adaptations_used.add((self.mode, step))
        if rewording is not None:
            self._note_rewording(rewording, failure)
        self.request = adapted
        if step == "fit" and adapted.num_ctx is None:
            room = f"{adapted.tokens_left} tokens" if adapted.tokens_left is not None else "what is left"
            return f"sent again for an answer of {room}"
        if step == "format":
            self._corrections_left -= 1
            return FORMAT_NOTE
        told = f"sent again {describe_adaptation(step, rewording.what if rewording else ())}"
        return f"{told} (num_ctx {adapted.num_ctx})" if step == "fit" else told

    def _note_rewording(self, rewording: Rewording, failure: Failure) -> None:
        """Note a rewording in the trace; if the server accepts it, later requests are reworded in this way too."""
        self._said_otherwise.append(rewording)
        if failure.kind != "crashed":  # a crash names no cause: that the grammar is at fault is a guess
            self._unproven.append((failure.kind, rewording))
        how = describe_adaptation(rewording.adaptation, rewording.what)
        self.notes.append(f"{failure.kind}: sent again {how}")

    def _next_mode(self, failure: Failure, at: float) -> str | None:
        if not self._modes_left or (failure.verdict and not failure.verdict.retry_elsewhere):
            return None
        self.record_failure(failure, at)
        mode = self._pop_mode(at)
        if mode == "harmony" and not self._can_render():
            mode = self._pop_mode(at)
        if mode is None:
            return None
        self._mode_before, self.mode = self.mode if "again" in REMEDIES[failure.kind] else None, mode
        self.request = replace(self.request, feedback=())
        return f"{mode} mode is tried"

    def _can_render(self) -> bool:
        """Return whether harmony mode, as the last mode to try, can render the request."""
        profile = self.request.profile
        if profile.raw == "completions" and "harmony" not in profile.modes:
            # only vLLM and SGLang fail in this way, and both strip the markers from a reply unless asked for token ids
            self.request = replace(self.request, profile=replace(profile, raw_ids=True))
        try:
            PREPARE["harmony"](self.request)
        except UsageError as error:
            self.notes.append(f"harmony mode was passed over: {error}")
            return False
        return True

    def _return_to_mode_before(self, failure: Failure) -> str | None:
        """Go back, once, from an impossible mode to the previous mode, in which another sample may succeed.

        If there is no mode to go back to, choose the first mode that the circuit breaker excluded. Return a
        description of what is tried; None if there is nothing to try.
        """
        if failure.kind not in {"no_raw", "tool_media"} or self._repeated:
            return None
        if self._mode_before is None:
            skipped = self._pop_skipped_mode()
            self.mode = skipped or self.mode
            return f"{skipped} mode is tried all the same" if skipped else None
        self._repeated = True
        self.mode = self._mode_before
        return f"{self.mode} mode is tried once more{self._vary()}"

    def _retry_same(self, failure: Failure, at: float) -> str | None:
        if self._repeated:
            return None
        self._repeated = True
        self.record_failure(failure, at)
        return f"the same is sent once more{self._vary()}"

    def _vary(self) -> str:
        """Vary the sampling if a repetition would give the same reply; return a description of the change, or ""."""
        varied = another_sample(self.request)
        if varied is None:
            return ""
        self.request = varied
        return ", with another seed and a little temperature"

    def _pop_mode(self, at: float) -> ModeName | None:
        """Remove and return the next mode; while the circuit breaker is used, skip the modes that it excludes."""
        while self._modes_left:
            mode = self._modes_left.pop(0)
            key = self._key(mode)
            if not self._uses_breaker or self._breaker.allows(key, at):
                return mode
            self.notes.append(f"{mode} mode was skipped: it failed lately ({self._breaker.why(key)})")
            self._skipped.append(mode)
        return None

    def _pop_skipped_mode(self) -> ModeName | None:
        """Remove and return the first mode that the circuit breaker excluded."""
        return self._skipped.pop(0) if self._skipped else None

    def _ignore_breaker(self, modes: Sequence[ModeName]) -> ModeName:
        """Stop using the circuit breaker, because it excludes every mode; return the first mode."""
        self._uses_breaker = False
        first, *self._modes_left = modes
        self.notes[:] = [
            f"every mode failed lately ({self._breaker.why(self._key(first))}): they are tried all the same"
        ]
        return first
