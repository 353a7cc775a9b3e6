"""Define how each endpoint of another API handles each parameter of a Chat Completions body.

The trace gets a note on every parameter that is left out and whose loss may matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from promptools.json_values import is_object
from promptools.numbers import as_int
from promptools.wire.json_body import as_object

ParameterHandling = Literal["kept", "option", "shaped", "written", "needless", "dropped"]
Endpoint: TypeAlias = Literal["ollama", "completions", "llamacpp", "generate"]
"""An endpoint of a server: `ollama` is Ollama's /api/chat, and the others are raw endpoints (see `EndpointRules`)."""


class ParameterRule(NamedTuple):
    """States how one endpoint handles a parameter."""

    handling: ParameterHandling
    """What happens to the parameter.

    `kept`: it is sent unchanged. `option`: it is sent in Ollama's `options`. `shaped`: it is converted to another
    value. `written`: the prompt expresses it, or promptools enforces it. `dropped`: it is left out, with a note in the
    trace. `needless`: it is left out without a note, since nothing is lost.
    """
    target: str = ""
    """The name under which the parameter is sent; empty if it keeps its own name."""
    reason: str = ""
    """Why the parameter is dropped or needless."""
    harmless: tuple[Any, ...] = ()
    """Values of a dropped parameter whose loss changes nothing; they are dropped without a note."""


class EndpointRules(NamedTuple):
    """Holds the rule of each endpoint for one parameter."""

    ollama: ParameterRule
    """The rule for Ollama's /api/chat."""
    completions: ParameterRule
    """The rule for /v1/completions of vLLM, SGLang, LM Studio and others."""
    llamacpp: ParameterRule
    """The rule for llama.cpp's /completion."""
    generate: ParameterRule
    """The rule for Ollama's /api/generate with `raw`."""


_KEPT = ParameterRule("kept")
_OPTION = ParameterRule("option")
_SHAPED = ParameterRule("shaped")
_THINK = ParameterRule("shaped", "think")
_IN_PROMPT = ParameterRule("written")


def _dropped(why: str, *harmless: Any) -> ParameterRule:
    return ParameterRule("dropped", "", why, harmless)


def _needless(why: str) -> ParameterRule:
    return ParameterRule("needless", "", why)


_UNKNOWN = _dropped("Ollama does not know it")


def _row(ollama: ParameterRule, raw: ParameterRule) -> EndpointRules:
    """Return the rules for a parameter that all raw endpoints handle in the same way."""
    return EndpointRules(ollama, raw, raw, raw)


_OLLAMA_NOTHING = "Ollama has nothing like it"
_NOTHING = "there is nothing like it"
_ACCOUNT = "it is for OpenAI's own accounts"
_SCORES = "they would be those of the raw text, with its reasoning and markers"
_MARKERS = "the markers are needed to read the reply"
_CHECKED = "it is ignored there: the reply is checked instead"
_OLLAMA_ONLY = _dropped("only Ollama knows it")
_ONE_CHOICE = _dropped("it gives one choice", 1)
_USAGE_AT_END = _needless("the end always tells the usage")

_NO_EQUIVALENT = _row(_dropped(_OLLAMA_NOTHING), _dropped(_NOTHING))
_NO_ACCOUNT = _row(_dropped(_ACCOUNT), _dropped(_ACCOUNT))
_NO_GRAMMAR = _row(_UNKNOWN, _dropped("a grammar leaves no room for the markers of calls and reasoning"))
_NO_TEMPLATE = _row(_UNKNOWN, _dropped("it is for a chat template, and the raw endpoint applies none"))
_NO_SEPARATION = _row(_UNKNOWN, _dropped("reasoning always comes apart", True))
_NO_MARKERS = _row(_UNKNOWN, _dropped(_MARKERS, False))
_LIMIT = EndpointRules(
    ParameterRule("option", "num_predict"),
    ParameterRule("kept", "max_tokens"),
    ParameterRule("kept", "n_predict"),
    ParameterRule("option", "num_predict"),
)
_SAMPLING = EndpointRules(_OPTION, _KEPT, _KEPT, _OPTION)
_REPEAT_PENALTY = ParameterRule("option", "repeat_penalty")
_OLLAMA = EndpointRules(_KEPT, _OLLAMA_ONLY, _OLLAMA_ONLY, _KEPT)

PARAMETERS: Mapping[str, EndpointRules] = MappingProxyType({
    # Chat Completions, as of openai 3.x
    "model": _row(_KEPT, _KEPT),
    "messages": _row(_SHAPED, _IN_PROMPT),
    "tools": _row(_SHAPED, _IN_PROMPT),
    "tool_choice": _row(_dropped(_CHECKED, "auto"), _IN_PROMPT),
    "parallel_tool_calls": _row(_dropped(_CHECKED, True), _IN_PROMPT),
    "functions": _row(_dropped("they are the old form of tools"), _IN_PROMPT),
    "function_call": _row(_dropped("it is the old form of tool_choice", "auto"), _IN_PROMPT),
    "response_format": _row(ParameterRule("shaped", "format"), _IN_PROMPT),
    "reasoning_effort": _row(_THINK, _IN_PROMPT),
    "stream": _row(_SHAPED, _KEPT),
    "stream_options": EndpointRules(_needless("the last line always tells the usage"), _KEPT,
                                    _USAGE_AT_END, _USAGE_AT_END),
    "max_completion_tokens": _LIMIT,
    "max_tokens": _LIMIT,
    "temperature": _SAMPLING,
    "top_p": _SAMPLING,
    "seed": _SAMPLING,
    "frequency_penalty": _SAMPLING,
    "presence_penalty": _SAMPLING,
    "stop": EndpointRules(_OPTION, _SHAPED, _SHAPED, _OPTION),
    "n": EndpointRules(_ONE_CHOICE, _KEPT, _KEPT, _ONE_CHOICE),
    "logit_bias": EndpointRules(_dropped(_OLLAMA_NOTHING), _KEPT, _KEPT, _dropped(_NOTHING)),
    "logprobs": _row(_KEPT, _dropped(_SCORES, False)),  # in Ollama since 0.12.11
    "top_logprobs": _row(_KEPT, _dropped(_SCORES, 0)),
    "user": EndpointRules(_dropped(_ACCOUNT), _KEPT, _dropped(_NOTHING), _dropped(_NOTHING)),
    "audio": _NO_EQUIVALENT,
    "modalities": _row(_dropped(_OLLAMA_NOTHING, ["text"]), _dropped(_NOTHING, ["text"])),
    "prediction": _NO_EQUIVALENT,
    "verbosity": _NO_EQUIVALENT,
    "web_search_options": _NO_EQUIVALENT,
    "moderation": _NO_EQUIVALENT,
    "metadata": _NO_ACCOUNT,
    "prompt_cache_key": _NO_ACCOUNT,
    "prompt_cache_options": _NO_ACCOUNT,
    "prompt_cache_retention": _NO_ACCOUNT,
    "safety_identifier": _NO_ACCOUNT,
    "service_tier": _row(_dropped(_ACCOUNT, "auto", "default"), _dropped(_ACCOUNT, "auto", "default")),
    "store": _row(_dropped(_ACCOUNT, False), _dropped(_ACCOUNT, False)),
    # what clients of open servers also send
    "reasoning": _row(_THINK, _IN_PROMPT),
    "chat_template_kwargs": _row(_THINK, _IN_PROMPT),
    "thinking": _row(_UNKNOWN, _dropped(_NOTHING)),
    "include_reasoning": _NO_SEPARATION,
    "separate_reasoning": _NO_SEPARATION,
    "stream_reasoning": _NO_SEPARATION,
    "top_k": _SAMPLING,
    "min_p": _SAMPLING,
    "typical_p": _SAMPLING,
    "repeat_penalty": _SAMPLING,
    "repetition_penalty": EndpointRules(
        _REPEAT_PENALTY, _KEPT, ParameterRule("kept", "repeat_penalty"), _REPEAT_PENALTY
    ),
    "repeat_last_n": _SAMPLING,
    "num_ctx": EndpointRules(_OPTION, _OLLAMA_ONLY, _OLLAMA_ONLY, _OPTION),
    "structured_outputs": _NO_GRAMMAR,
    "guided_json": _NO_GRAMMAR,
    "guided_regex": _NO_GRAMMAR,
    "guided_choice": _NO_GRAMMAR,
    "guided_grammar": _NO_GRAMMAR,
    "grammar": _NO_GRAMMAR,
    "json_schema": _NO_GRAMMAR,
    "regex": _NO_GRAMMAR,
    "ebnf": _NO_GRAMMAR,
    "chat_template": _NO_TEMPLATE,
    "add_generation_prompt": _NO_TEMPLATE,
    "continue_final_message": _NO_TEMPLATE,
    "documents": _NO_TEMPLATE,
    "add_special_tokens": _NO_TEMPLATE,
    "echo": _row(_UNKNOWN, _dropped("the reply is the model's text alone", False)),
    "suffix": _row(_UNKNOWN, _dropped(_NOTHING)),
    "skip_special_tokens": _NO_MARKERS,
    "spaces_between_special_tokens": _NO_MARKERS,
    "stop_token_ids": EndpointRules(_UNKNOWN, _SHAPED, _dropped(_NOTHING), _dropped(_NOTHING)),
    "return_token_ids": EndpointRules(_UNKNOWN, _SHAPED, _dropped(_NOTHING, False), _dropped(_NOTHING, False)),
    # Ollama's own parameters, set by the application: they override values converted from other parameters
    "format": _NO_GRAMMAR._replace(ollama=_KEPT),
    "think": _row(_KEPT, _IN_PROMPT),
    "options": _OLLAMA,
    "keep_alive": _OLLAMA,
    "truncate": _OLLAMA,
    "shift": _OLLAMA,
})  # fmt: skip
"""The rules for each parameter of a Chat Completions body."""

UNKNOWN_PARAMETER = EndpointRules(_UNKNOWN, _KEPT, _KEPT, _UNKNOWN)
"""The rules for a key that `PARAMETERS` does not list. Servers may know such a key; Ollama ignores unknown keys."""


def rule_for(key: str, endpoint: Endpoint) -> ParameterRule:
    """Return the rule for a key on an endpoint."""
    rule: ParameterRule = getattr(PARAMETERS.get(key, UNKNOWN_PARAMETER), endpoint)
    return rule


def thinking_budget(thinking: Any) -> int | None:
    """Return the token budget in a `thinking` parameter of Anthropic's API; None if the parameter sets no budget."""
    data = as_object(thinking)
    budget = as_int(data.get("budget_tokens")) if data.get("type") == "enabled" else None
    return budget if budget is not None and budget > 0 else None


def apply_rules(body: Mapping[str, Any], endpoint: Endpoint) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """Return the parameters to send with unchanged values, those to send in `options`, and notes on the dropped ones.

    There is one note per reason. If two parameters would be sent under the same name, the first in `PARAMETERS` is
    sent.
    """
    given = {key: value for key, value in body.items() if value is not None}
    ordered = [*(key for key in PARAMETERS if key in given), *(key for key in given if key not in PARAMETERS)]
    kept: dict[str, Any] = {}
    options: dict[str, Any] = {}
    dropped: dict[str, list[str]] = {}
    for key in ordered:
        rule = rule_for(key, endpoint)
        if rule.handling == "kept":
            kept.setdefault(rule.target or key, given[key])
        elif rule.handling == "option":
            options.setdefault(rule.target or key, given[key])
        elif rule.handling == "dropped" and given[key] not in rule.harmless:
            dropped.setdefault(rule.reason, []).append(key)
    return kept, options, tuple(f"not sent: {', '.join(keys)}; {why}" for why, keys in dropped.items())


def merge_options(kept: Mapping[str, Any], options: Mapping[str, Any], num_ctx: int | None) -> Any:
    """Return Ollama's `options`: the converted `options`, overridden by the request's own `options` in `kept`.

    The argument `num_ctx` is used if neither the converted `options` nor the request's own `options` set `num_ctx`. If
    the request's own `options` are not an object, they are returned unchanged, so that the server refuses them.
    """
    own = kept.get("options", {})
    context = {} if num_ctx is None else {"num_ctx": num_ctx}
    return {**context, **options, **own} if is_object(own) else own
