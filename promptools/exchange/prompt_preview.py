"""Render the prompt of raw mode for a request that is not sent: `promptools render --mode raw` shows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from promptools.errors import UpstreamError, without_credentials
from promptools.exchange.exchange_state import ExchangeState, api_base
from promptools.exchange.retry.attempt_plan import AttemptPlan
from promptools.exchange.retry.mode_registry import get_mode, modes_for
from promptools.exchange.retry.template_rendering import render_prompt
from promptools.exchange.routed_request import open_request

if TYPE_CHECKING:
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.exchange_state import Steps
    from promptools.modes.mode import PreparedRequest
    from promptools.modes.requests.tool_request import ToolRequest


@dataclass(frozen=True, slots=True)
class PromptPreview:
    """A request as raw mode would send it."""

    request: ToolRequest
    """The request, with its rendered prompt."""
    prepared: PreparedRequest
    notes: tuple[str, ...]
    """What was changed or left out, as sentences."""


def preview_prompt(request: ClientRequest, context: Context) -> Steps[PromptPreview]:
    """Render the prompt as before an attempt in raw mode. Nothing is generated.

    Raises UsageError if raw mode is not possible there or cannot express the request, and UpstreamError if the server
    does not answer or refuses.
    """
    state = ExchangeState(request, context)
    routed = yield from open_request(state)
    state.url, state.headers = routed.route.url, routed.route.headers
    profile = routed.route.target.profile
    if state.seen is not None and not state.seen.answered and profile.chat_template is None:
        raise UpstreamError(f"no server answers at {without_credentials(api_base(routed.url))}")
    parsed = yield from routed.parse(state)
    parsed = replace(parsed, options=parsed.options.override({"mode": "raw"}))
    plan = AttemptPlan(parsed, modes_for(parsed, tools=routed.has_tools), routed.provider_model, context, state.now)
    failure = yield from render_prompt(state, plan)
    if failure is not None:
        status = "" if failure.status is None else f" (HTTP {failure.status})"
        raise UpstreamError(f"{without_credentials(api_base(routed.url))} rendered no prompt{status}: {failure.why}")
    prepared = get_mode("raw").prepare(plan.request)
    notes = (*routed.notes, *state.notes, *prepared.notes)
    return PromptPreview(plan.request, prepared, tuple(dict.fromkeys(notes)))
