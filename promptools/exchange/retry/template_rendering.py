"""Ask the server, or a template of the config, for the prompt of raw mode, before an attempt in that mode.

One request renders the conversation. Only where a call is required, two more may render calls after it, to learn how
the template begins them, and one turns that beginning into ids where the prompt is of ids. Nothing is generated. A
prompt is kept for as long as its request: the same conversation, asked again in another attempt or for another choice,
is not rendered twice. It is not kept from one request to the next: templates drop the reasoning of earlier turns when
a new one begins, so a conversation's prompt is not the beginning of the next turn's.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.effects import Failed
from promptools.exchange.upstream.failure import Failure, failure_of_connection, failure_of_status
from promptools.exchange.upstream.upstream_request import requested_context
from promptools.modes.raw_mode import (
    RawMode,
    beginning_in_examples,
    beginning_of_call,
    example_calls,
    shows_tools,
)
from promptools.modes.requests.jinja_template import render_template
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
    from promptools.modes.requests.tool_request import ToolRequest

NO_PLACE = "Ollama's /api/chat, which renders the template, has no place for a part of the conversation"
NO_TOOLS = "the model's template does not show it the tools"
NO_PROMPT = "the server's answer holds no rendered prompt"


def render_prompt(state: ExchangeState, plan: AttemptPlan) -> Steps[Failure | None]:
    """Render the prompt of the plan's request into the request; return why it could not be, if so.

    Raises UsageError where raw mode is the only mode that the request allows, and cannot express it.
    """
    try:
        outcome = yield from _render(state, plan.request)
        if isinstance(outcome, Failure):
            return outcome
        request, prompt = outcome
        rendered = yield from _begin_call(state, request, prompt)
        if isinstance(rendered, Failure):
            return rendered
    except UsageError as error:
        if plan.request.options.mode is not None:
            raise
        return Failure("tool_media", str(error))
    plan.request = replace(request, rendered=rendered)
    return None


def _render(state: ExchangeState, request: ToolRequest) -> Steps[Failure | tuple[ToolRequest, RenderedPrompt]]:
    native = yield from state.compute(partial(RawMode().template_body, request))
    if request.template is not None and request.rendered is not None and request.template.body == native.body:
        return request, _without_prefill(request.rendered)
    request = replace(request, template=native)
    prompt = yield from _render_body(state, request, native.body)
    if isinstance(prompt, Failure):
        return prompt
    if not shows_tools(native, prompt):
        return Failure("no_native_tools", NO_TOOLS, opened=state.opened)
    return request, prompt


def _render_body(
    state: ExchangeState, request: ToolRequest, body: Mapping[str, Any]
) -> Steps[RenderedPrompt | Failure]:
    profile = request.profile
    if profile.chat_template is not None:
        text = yield from state.compute(partial(render_template, profile.chat_template, body))
        return RenderedPrompt(text, text)
    assert profile.template_endpoint is not None, "raw mode is offered only where a template can be rendered"
    asked = encode_template_request(body, profile.template_endpoint, num_ctx=requested_context(request))
    if asked is None:
        raise UsageError(NO_PLACE)
    answer = yield from _ask(state, asked, request)
    if isinstance(answer, Failure):
        return answer
    prompt = decode_rendered_prompt(answer, profile.template_endpoint)
    return Failure("no_raw", NO_PROMPT, opened=state.opened) if prompt is None else prompt


def _without_prefill(prompt: RenderedPrompt) -> RenderedPrompt:
    """Return a prompt without the beginning of a call that an earlier attempt added."""
    content = prompt.content[: len(prompt.content) - prompt.prefill_size]
    return replace(prompt, content=content, prefill="", prefill_size=0)


def _begin_call(state: ExchangeState, request: ToolRequest, prompt: RenderedPrompt) -> Steps[RenderedPrompt | Failure]:
    """Add the beginning of a required call to the prompt."""
    head = beginning_of_call(request, prompt)
    if head is None:
        examples: list[RenderedPrompt] = []
        for body in example_calls(request):
            example = yield from _render_body(state, request, body)
            if isinstance(example, Failure):
                return prompt  # a template that renders no calls: the checks of every mode are left
            examples.append(example)
        head = beginning_in_examples(request, prompt, examples)
    if not head:
        return prompt
    if isinstance(prompt.content, str):
        return replace(prompt, content=prompt.content + head, prefill=head, prefill_size=len(head))
    answer = yield from _ask(state, encode_tokenize_request(request.model, head), request)
    if isinstance(answer, Failure):
        return answer
    ids = decode_rendered_prompt(answer, "tokenize")
    if ids is None or isinstance(ids.content, str):
        return Failure("no_raw", NO_PROMPT, opened=state.opened)
    return replace(prompt, content=(*prompt.content, *ids.content), prefill=head, prefill_size=len(ids.content))


def _ask(state: ExchangeState, asked: TemplateRequest, request: ToolRequest) -> Steps[Any]:
    """Return the JSON of the server's answer, or the failure."""
    opened = yield from state.send_aside(encode_json(asked.body), asked.path)
    if isinstance(opened, Failed):
        return failure_of_connection(opened)
    body = yield from state.read_all()
    if not 200 <= opened.status < 300:
        failure = failure_of_status(opened, body, request.profile.raw or "completions")
        return replace(failure, kind="no_raw") if failure.kind == "refused" else failure
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return Failure("no_raw", NO_PROMPT, opened=opened, body=body)
