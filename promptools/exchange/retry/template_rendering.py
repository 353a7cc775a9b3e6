"""Ask the server, or a template of the config, for the prompt of raw mode, before an attempt in that mode.

One request renders the conversation. Only where a call is required, two more may render calls after it, to learn how
the template begins them, and one turns that beginning into ids where the prompt is of ids. Nothing is generated. A
prompt is kept for as long as the exchange: the same conversation, asked again in another attempt or for another choice,
is not rendered twice. It is not kept from one exchange to the next: templates drop the reasoning of earlier turns when
a new one begins, so a conversation's prompt is not the beginning of the next turn's.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.effects import Failed, Opened
from promptools.exchange.upstream.failure import Failure, failure_of_connection, failure_of_status
from promptools.exchange.upstream.upstream_request import requested_context
from promptools.modes.raw.jinja_template import notes_on_unused, render_template
from promptools.modes.raw.raw_mode import (
    RawMode,
    beginning_in_examples,
    beginning_of_call,
    example_calls,
    shows_tools,
)
from promptools.wire.raw.chat_template import (
    RenderedPrompt,
    TemplateRequest,
    decode_rendered_prompt,
    encode_template_request,
    encode_tokenize_request,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.exchange.exchange_state import ExchangeState, Steps
    from promptools.exchange.retry.attempt_plan import AttemptPlan
    from promptools.modes.mode import PreparedRequest
    from promptools.modes.requests.tool_request import ToolRequest

NO_PLACE = "Ollama's /api/chat, which renders the template, has no place for a part of the conversation"
NO_TOOLS = "the model's template does not show it the tools"
WITHOUT_RAW = (
    "leave `mode` out, or use prompt mode, which describes tools itself; or name a template that shows them"
    " (`chat_template` in the profile, as docs/reference/raw-mode.md has it)"
)
NO_PROMPT = "the server's answer holds no rendered prompt"


def render_prompt(state: ExchangeState, plan: AttemptPlan) -> Steps[Failure | None]:
    """Render the prompt of the plan's request into the request; return why the server did not, if so.

    Raises UsageError where raw mode cannot express the request, the template of the config fails, or the template shows
    the model no tools and no other mode may be tried.
    """
    native = yield from state.compute(partial(RawMode().template_body, plan.request))
    request = replace(plan.request, template=native)
    prompt = yield from _render(state, request, native)
    if isinstance(prompt, RenderedPrompt):
        prompt = yield from _begin_call(state, request, prompt)
    if isinstance(prompt, Failure):
        if prompt.kind == "no_native_tools" and not plan.has_other_modes and not state.attempts:
            raise UsageError(f"{prompt.why}, so raw mode is not possible: {WITHOUT_RAW}")
        return prompt
    plan.request = replace(request, rendered=prompt)
    return None


def _render(state: ExchangeState, request: ToolRequest, native: PreparedRequest) -> Steps[Failure | RenderedPrompt]:
    prompt = yield from _render_body(state, request, native.body)
    if isinstance(prompt, Failure):
        return prompt
    if not shows_tools(native, prompt):
        return Failure("no_native_tools", NO_TOOLS, opened=state.opened)
    return prompt


def _render_body(
    state: ExchangeState, request: ToolRequest, body: Mapping[str, Any]
) -> Steps[Failure | RenderedPrompt]:
    profile = request.profile
    if profile.chat_template is not None:
        text = yield from state.compute(partial(render_template, profile.chat_template, body))
        return RenderedPrompt(text, text, notes=notes_on_unused(body))
    assert profile.template_endpoint is not None, "raw mode is offered only where a template can be rendered"
    asked = encode_template_request(body, profile.template_endpoint, num_ctx=requested_context(request))
    if asked is None:
        raise UsageError(NO_PLACE)
    answer = yield from _fetch(state, asked, request)
    if isinstance(answer, Failure):
        return answer
    prompt = decode_rendered_prompt(answer, profile.template_endpoint)
    if prompt is None:
        return Failure("no_raw", NO_PROMPT, opened=state.opened)
    return replace(prompt, notes=asked.notes)


def _begin_call(state: ExchangeState, request: ToolRequest, prompt: RenderedPrompt) -> Steps[Failure | RenderedPrompt]:
    """Add the beginning of a required call to the prompt."""
    head = beginning_of_call(request, prompt)
    if head is None:
        head = yield from _beginning_by_template(state, request, prompt)
    if not head:
        return prompt
    if isinstance(prompt.content, str):
        return replace(prompt, content=prompt.content + head, prefill=head)
    answer = yield from _fetch(state, encode_tokenize_request(request.model, head), request)
    if isinstance(answer, Failure):
        return answer
    ids = decode_rendered_prompt(answer, "tokenize")
    if ids is None or isinstance(ids.content, str):
        return Failure("no_raw", NO_PROMPT, opened=state.opened)
    return replace(prompt, content=(*prompt.content, *ids.content), prefill=head)


def _beginning_by_template(state: ExchangeState, request: ToolRequest, prompt: RenderedPrompt) -> Steps[str]:
    """Return how the template begins calls; empty if it renders none, which leaves the checks of every mode."""
    examples: list[RenderedPrompt] = []
    for body in example_calls(request):
        try:
            example = yield from _render_body(state, request, body)
        except UsageError:
            return ""
        if isinstance(example, Failure):
            return ""
        examples.append(example)
    return beginning_in_examples(request, prompt, examples)


def _fetch(state: ExchangeState, asked: TemplateRequest, request: ToolRequest) -> Steps[Any]:
    """Return the JSON of the server's answer, or the failure: a request that another mode may still serve."""
    body = yield from state.compute(partial(encode_json, asked.body))
    answer = yield from state.fetch(body, asked.path, RawMode.name)
    if isinstance(answer, Failed):
        failure = failure_of_connection(answer)
        return failure if state.policy.seconds_left(state.now) == 0 else replace(failure, kind="no_raw")
    if isinstance(answer, Opened):
        failure = failure_of_status(answer, (yield from state.read_error()), request.profile.raw or "completions")
        return replace(failure, kind="no_raw") if failure.kind == "refused" else failure
    return (yield from state.compute(partial(_parse_json, answer), max(len(answer), len(state.request.body))))


def _parse_json(data: bytes) -> Any:
    """Parse an answer; None, which holds no prompt, if it is no JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
