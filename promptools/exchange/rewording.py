"""Change a request that a server refused, so that the server accepts it.

A rewording changes a fact in the request's profile, or leaves out or renames something in the request.

`find_rewording` finds out from a failure what was refused, and `reword` changes the request accordingly. For an hour,
every request to the same server and model is changed in this way before it is sent (`Refusals`), which saves the
attempt that the server would refuse.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from promptools.fallback import REMEDIES, Adaptation, Rewording, fitting_context
from promptools.fallback.overflow import MIN_ANSWER_TOKENS
from promptools.fallback.rules import (
    BUDGET_PARAMETERS,
    LIMIT_PARAMETERS,
    MESSAGE_PARAMETERS,
    refused_parameters,
    searched_parts,
)
from promptools.json_values import is_array
from promptools.modes.history import has_stray_system
from promptools.modes.prepared_request import constraint_key
from promptools.modes.response_format import without_tools
from promptools.numbers import as_count
from promptools.wire.chat_decoder import REASONING_FIELDS
from promptools.wire.json_body import as_list, as_object
from promptools.wire.parameters import thinking_budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.failures import Failure
    from promptools.fallback import Overflow
    from promptools.modes.tool_request import ToolRequest
    from promptools.types import ModeName


REASONING_KEYS = ("reasoning_effort", "reasoning", "think", "thinking", "include_reasoning", *BUDGET_PARAMETERS)
_TEMPLATE_KEYS = ("enable_thinking", "thinking", "reasoning_effort")
_FORCED = ("named", "required")

_FactAdaptation: TypeAlias = Literal[
    "relax_schema", "ids", "object_history", "null_content", "plain_content", "no_stream_options", "no_parallel",
    "system_first",
]  # fmt: skip
REVEALED_FACTS: dict[_FactAdaptation, dict[str, Any]] = {
    "relax_schema": {"relax_schema": True},
    "ids": {"tool_ids": "alnum9"},
    "object_history": {"history_arguments": "object"},
    "null_content": {"null_content": False},
    "plain_content": {"content_parts": False, "result_parts": False},
    "no_stream_options": {"stream_usage": False},
    "no_parallel": {"parallel_tool_calls": False},
    "system_first": {"system_place": "first"},
}
"""Maps adaptations to profile facts. A server that refuses a request without the adaptation reveals these facts."""
_IDLE_KEYS: dict[Adaptation, frozenset[str]] = {
    "tool_choice": frozenset({"tool_choice", "function_call"}),
    "no_parallel": frozenset({"parallel_tool_calls"}),
    "no_empty_tools": frozenset({"tools", "functions"}),
}
"""Maps each adaptation to the keys that it removes from a request without tools.

Once the server is known to refuse such a key, a request with the key is no longer forwarded unchanged.
"""
NOT_REMEMBERED: frozenset[Adaptation] = frozenset({"relax_schema", "functions_only", "format", "fit"})
"""Adaptations that are not remembered, because later requests have different schemas, tools and answers.

The context size that `fit` finds is remembered separately, in `ContextSizes`.
"""
_REWORDED: frozenset[Adaptation] = frozenset(get_args(Adaptation)) - NOT_REMEMBERED
_SEEDS = 2**31
"""Exclusive upper bound of the seeds that promptools chooses; all servers accept seeds below this number."""
ANOTHER_TEMPERATURE = 0.2
"""The temperature of a second sample if the request asks for temperature 0, which would give the same reply."""


def adapt_request(adaptation: Adaptation, request: ToolRequest, failure: Failure, mode: ModeName) -> ToolRequest | None:
    """Return a copy of the request with one adaptation applied after a failure; None if that changes nothing."""
    match adaptation:
        case "format":
            if failure.verdict is None or not request.checks_response_format:
                return None  # the format was requested already
            return without_tools(request, failure.verdict.feedback)
        case "fit":
            if mode in {"harmony", "raw"} and request.profile.raw == "completions":
                return _limit_answer(request, failure.overflow)
            return _raise_context(request, failure.overflow.prompt, failure.context_limit)
        case _:
            return reword(find_rewording(adaptation, request, failure), request, mode)


def find_rewordings(failure: Failure, request: ToolRequest) -> tuple[Rewording, ...]:
    """Return the changes (rewordings) that a failure suggests for all requests to this server and model."""
    steps = REMEDIES[failure.kind]
    return tuple(find_rewording(step, request, failure) for step in steps if step in _REWORDED)


def find_rewording(adaptation: Adaptation, request: ToolRequest, failure: Failure) -> Rewording:
    """Return, for one adaptation, the rewording that a failure suggests for requests to this server and model."""
    text = failure.text.lower()
    match adaptation:
        case "tool_choice":
            # DeepSeek's API refuses every forced call, but only while the model thinks (DeepSeek-V3#1376).
            if "thinking" in text:
                return Rewording(adaptation, _FORCED, _reasoning_digest(request))
            return Rewording(adaptation, _next_weaker(request))
        case "roles":
            # Gemma's template: `System role not supported`.
            fold = "system" in text and "not supported" in text
            return Rewording(adaptation, ("system",) if fold else ())
        case "no_reasoning":
            return Rewording(adaptation, beside=_reasoning_digest(request))
        case "without_params":
            refused = refused_parameters(searched_parts(failure.text))
            return Rewording(adaptation, tuple(name for name in refused if _without_parameters(request, (name,))))
        case _:
            return Rewording(adaptation)


def reword(rewording: Rewording, request: ToolRequest, mode: ModeName | None = None) -> ToolRequest | None:
    """Return a copy of the request, changed so that the server accepts it; None if nothing in it was refused.

    `mode` is the mode of the attempt; None stands for any mode.
    """
    adaptation, what, beside = rewording
    if beside and beside != _reasoning_digest(request):
        return None
    match adaptation:
        case "tool_choice":
            left = request.profile.tool_choice - {*what}
            return _with_facts(request, tool_choice=left) if what else None
        case "functions_only":
            return replace(request, other_tools=()) if request.other_tools else None
        case "roles":
            return _with_facts(
                request, alternate_roles=True, system_role=request.profile.system_role and "system" not in what
            )
        case "no_reasoning":
            return without_reasoning(request)
        case "system_first" if not has_stray_system(request.messages):
            return None
        case "no_empty_tools":
            empty = (key for key in ("tools", "functions") if request.body.get(key) == [])
            return _without(request, *empty)
        case "without_params":
            return _without_parameters(request, what)
        case "no_grammar":
            return _without_grammar(request, mode)
        case "format" | "fit":
            return None
        case _:
            return _with_facts(request, **REVEALED_FACTS[adaptation])


def reword_known(known: Iterable[Rewording], request: ToolRequest) -> tuple[ToolRequest, tuple[Rewording, ...]]:
    """Apply the known rewordings that concern the request; return the new request and the applied rewordings."""
    applied: list[Rewording] = []
    for rewording in known:
        reworded = reword(rewording, request) if _concerns(rewording, request) else None
        if reworded is not None:
            request = reworded
            applied.append(rewording)
    return request, tuple(applied)


def rewords_forwarded(rewordings: Iterable[Rewording], request: ToolRequest, sent: Mapping[str, Any]) -> bool:
    """Return whether known rewordings change a request without tools, so that it cannot be forwarded unchanged.

    `sent` is the body that would be forwarded.
    """
    known = tuple(rewordings)
    idle = any(not _IDLE_KEYS.get(rewording.adaptation, frozenset()).isdisjoint(sent) for rewording in known)
    return idle or bool(reword_known(known, request)[1])


def _concerns(rewording: Rewording, request: ToolRequest) -> bool:
    """Return whether the request contains what was refused.

    The result of `reword` does not show this, because `reword` may change a profile fact that does not matter for
    this request.
    """
    messages, body = request.messages, request.body
    match rewording.adaptation:
        case "ids" | "object_history":
            return any(message.get("tool_calls") for message in messages)
        case "null_content":
            return any("content" in message and message["content"] is None for message in messages)
        case "plain_content":
            return any(is_array(message.get("content")) for message in messages)
        case "roles":
            roles = [message.get("role") for message in messages]
            return (
                "system" in roles or roles[:1] == ["assistant"] or any(one == other for one, other in pairwise(roles))
            )
        case "no_stream_options":
            return request.stream or "stream_options" in body
        case "no_parallel":
            return "parallel_tool_calls" in body
        case "tool_choice":
            return not _IDLE_KEYS["tool_choice"].isdisjoint(body) and request.choice.kind in rewording.what
        case _:
            return True


def another_sample(request: ToolRequest) -> ToolRequest | None:
    """Return a variant of the request whose reply may be different; None if repeating the request is enough.

    At temperature 0, or with a seed, the model would write the same reply again.
    """
    own = as_object(request.body.get("options"))  # Ollama's `options` override keys of the body
    given = {**request.body, **own}
    greedy, seed = given.get("temperature") == 0, as_count(given.get("seed"))  # for llama.cpp, -1 is any seed
    if not greedy and seed is None:
        return None
    changed: dict[str, Any] = {"seed": 1 if seed is None else (seed + 1) % _SEEDS}
    changed |= {"temperature": ANOTHER_TEMPERATURE} if greedy else {}
    inner = {key: changed[key] for key in changed if key in own}
    outer = {key: changed[key] for key in changed if key not in own}
    body = {**request.body, **outer, **({"options": {**own, **inner}} if inner else {})}
    return replace(request, body=body)


def _with_facts(request: ToolRequest, **facts: Any) -> ToolRequest | None:
    profile = replace(request.profile, **facts)
    return None if profile == request.profile else replace(request, profile=profile)


def _next_weaker(request: ToolRequest) -> tuple[str, ...]:
    """Return, as a tuple, the kind of `tool_choice` to give up, so that the next weaker kind is sent.

    It is the refused kind: the strictest kind in the profile that suits the request, because that kind was sent. If a
    weaker kind is sent, promptools checks that the reply has the required call.
    """
    ladder = {"named": ("named", "required", "auto"), "required": ("required", "auto")}
    kinds = ladder.get(request.choice.kind, (request.choice.kind,))
    return next(((kind,) for kind in kinds if kind in request.profile.tool_choice), ())


def _raise_context(request: ToolRequest, prompt: int | None, limit: int | None) -> ToolRequest | None:
    """Return a copy of the request with a context that fits the prompt; None if that is impossible or unnecessary."""
    if prompt is None or limit is None:
        return None
    size = fitting_context(prompt, answer=request.max_tokens, limit=limit)
    return None if size is None or size <= (request.num_ctx or 0) else replace(request, num_ctx=size)


def _limit_answer(request: ToolRequest, overflow: Overflow) -> ToolRequest | None:
    """Return a copy of the request whose answer is limited to the tokens left in the context; None if nothing changes.

    A request that sets `max_tokens` itself is not changed.
    """
    if request.max_tokens is not None or overflow.context is None or overflow.at_least:
        return None
    if overflow.prompt is None:  # the server has not counted the prompt: with its context known, we count it ourselves
        return _with_facts(request, context=overflow.context)
    left = overflow.context - overflow.prompt
    return None if left < MIN_ANSWER_TOKENS or left == request.tokens_left else replace(request, tokens_left=left)


def _without(request: ToolRequest, *keys: str) -> ToolRequest | None:
    body = {key: value for key, value in request.body.items() if key not in keys}
    return replace(request, body=body) if len(body) < len(request.body) else None


def _without_parameters(request: ToolRequest, names: Iterable[str]) -> ToolRequest | None:
    """Leave out parameters that the server does not accept, except that a limit on the answer's length is renamed."""
    reworded = request
    for name in names:
        if name in LIMIT_PARAMETERS:
            one, other = LIMIT_PARAMETERS
            reworded = _rename(reworded, name, other if name == one else one) or reworded
        elif name in MESSAGE_PARAMETERS:
            reworded = _without_in_messages(reworded, name) or reworded
        elif name == "strict":
            reworded = _without_strict(reworded) or reworded
        elif name == "stream_options":
            reworded = (_with_facts(reworded, stream_usage=False) if request.stream else None) or reworded
        elif name in BUDGET_PARAMETERS and thinking_budget(request.body.get("thinking")) is not None:
            reworded = _with_facts(reworded, thinking_budget=None) or reworded
        else:
            reworded = _without(reworded, name) or reworded
    return None if reworded is request else reworded


def _rename(request: ToolRequest, name: str, other: str) -> ToolRequest | None:
    """Return a copy of the request with `name` renamed to `other`, overwriting `other`; None if `name` has no value."""
    if request.body.get(name) is None:
        return None
    body = {other if key == name else key: value for key, value in request.body.items() if key != other}
    return replace(request, body=body)


def _without_in_messages(request: ToolRequest, name: str) -> ToolRequest | None:
    """Leave a key out of all messages; if the key holds reasoning, the other keys for reasoning are left out too."""
    names = {name, *(REASONING_FIELDS if name in REASONING_FIELDS else ())}
    messages: list[Any] = as_list(request.body.get("messages"))
    kept = [{key: value for key, value in as_object(item).items() if key not in names} for item in messages]
    return None if kept == messages else replace(request, body={**request.body, "messages": kept})


def _without_strict(request: ToolRequest) -> ToolRequest | None:
    """Remove `strict` from the tools and from `response_format`; calls to these tools are still validated."""
    form = as_object(request.body.get("response_format"))
    schema = as_object(form.get("json_schema"))
    if "strict" in schema:
        plain = {key: value for key, value in schema.items() if key != "strict"}
        request = replace(request, body={**request.body, "response_format": {**form, "json_schema": plain}})
        return _without_strict(request) or request
    offered = any("strict" in tool["function"] for tool in request.tools.payloads)
    return _with_facts(request, strict_tools=False) if offered else None


def _without_grammar(request: ToolRequest, mode: ModeName | None) -> ToolRequest | None:
    """Return the request without the grammar that enforces calls; only the prompt then asks for a required call.

    Return None if no grammar enforces calls in `mode`, or in any mode if `mode` is None.
    """
    profile = request.profile
    native = request.choice.forced and not profile.tool_choice.isdisjoint(_FORCED)
    strict = profile.strict_tools and any(tool.strict for tool in request.tools)
    in_mode = {"native": native or strict, "prompt": constraint_key(request) is not None}
    if not (any(in_mode.values()) if mode is None else in_mode.get(mode)):
        return None
    return _with_facts(request, tool_choice=profile.tool_choice - {*_FORCED}, strict_tools=False, constrained=None)


def _reasoning_digest(request: ToolRequest) -> str:
    """Return a digest of the request's reasoning parameters."""
    given = {key: request.body[key] for key in REASONING_KEYS if key in request.body}
    template = as_object(request.body.get("chat_template_kwargs"))
    text = json.dumps([given, {key: template[key] for key in _TEMPLATE_KEYS if key in template}], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def without_reasoning(request: ToolRequest) -> ToolRequest | None:
    """Return the request without its reasoning parameters; None if it has none."""
    reduced = _without(request, *REASONING_KEYS)
    template_kwargs = as_object(request.body.get("chat_template_kwargs"))
    kept = {key: value for key, value in template_kwargs.items() if key not in _TEMPLATE_KEYS}
    if len(kept) == len(template_kwargs):
        return reduced
    adapted = reduced or request
    return replace(adapted, body={**adapted.body, "chat_template_kwargs": kept})
