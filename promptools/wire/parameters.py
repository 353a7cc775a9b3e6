"""The rule for each parameter of a Chat Completions body on each raw endpoint; none is lost silently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from promptools.harmony.control_tokens import TOKEN_IDS
from promptools.wire.json_types import as_list

if TYPE_CHECKING:
    from promptools.harmony.bpe_vocabulary import Decode
    from promptools.profiles.profile import Raw

ParameterHandling = Literal["kept", "option", "shaped", "told", "needless", "dropped"]


class ParameterRule(NamedTuple):
    """The rule for one parameter on one endpoint."""

    handling: ParameterHandling
    """`kept`: as it is; `option`: in Ollama's `options`; `shaped`: converted to another value; `told`: expressed by the
    prompt or enforced here; `dropped`: left out, with a note in the trace; `needless`: left out silently, since nothing
    is lost."""
    target: str = ""
    """The name to send it under, if it is another."""
    reason: str = ""
    """The reason for dropping it, or why it is needless."""
    harmless: tuple[Any, ...] = ()
    """Values whose loss changes nothing: they are dropped silently."""


class EndpointRules(NamedTuple):
    """The rules for one parameter."""

    completions: ParameterRule
    """/v1/completions, of vLLM, SGLang, LM Studio and others."""
    llamacpp: ParameterRule
    """llama.cpp's /completion."""
    generate: ParameterRule
    """Ollama's /api/generate with `raw`."""


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """The prompt that the model continues."""

    content: str | tuple[int, ...]
    """Text, or token ids where the endpoint accepts them."""
    max_tokens: int
    """The token limit to send, where the request sets none and the endpoint's default would cut the answer."""

    decode: Decode | None = None
    """Decodes the token ids of the reply, which are then requested; None: the reply is read as text."""

    @property
    def as_json(self) -> str | list[int]:
        """The prompt as a JSON value."""
        return self.content if isinstance(self.content, str) else list(self.content)


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request for a raw endpoint."""

    body: dict[str, Any]
    notes: tuple[str, ...] = ()
    """What was left out, as sentences for the trace."""


END_OF_TURN_TOKENS = ("<|return|>", "<|call|>")
"""The tokens that end a turn of gpt-oss."""
END_OF_TURN_IDS: Mapping[int, str] = MappingProxyType(
    {TOKEN_IDS["return"]: END_OF_TURN_TOKENS[0], TOKEN_IDS["call"]: END_OF_TURN_TOKENS[1]}
)

_KEPT, _OPTION, _SHAPED, _IN_PROMPT = (
    ParameterRule("kept"),
    ParameterRule("option"),
    ParameterRule("shaped"),
    ParameterRule("told"),
)


def _same(fate: ParameterRule) -> EndpointRules:
    return EndpointRules(fate, fate, fate)


def _dropped(why: str, *harmless: Any) -> ParameterRule:
    return ParameterRule("dropped", "", why, harmless)


_NOTHING = "there is nothing like it"
_ACCOUNT = "it is for OpenAI's own accounts"
_SCORES = "they would be those of Harmony's text, thoughts and markers too"
_GRAMMAR = "a grammar leaves no room for Harmony's own tokens"
_TEMPLATE = "it is for a chat template, and none is applied"
_MARKERS = "the markers are needed to read the reply"
_OLLAMA_ONLY = "only Ollama knows it"
_SEPARATE = "thoughts always come apart"

_NO_EQUIVALENT = _same(_dropped(_NOTHING))
_NO_ACCOUNT = _same(_dropped(_ACCOUNT))
_NO_GRAMMAR = _same(_dropped(_GRAMMAR))
_NO_TEMPLATE = _same(_dropped(_TEMPLATE))
_LIMIT = EndpointRules(
    ParameterRule("kept", "max_tokens"), ParameterRule("kept", "n_predict"), ParameterRule("option", "num_predict")
)
_SAMPLING = EndpointRules(_KEPT, _KEPT, _OPTION)
_OLLAMA = EndpointRules(_dropped(_OLLAMA_ONLY), _dropped(_OLLAMA_ONLY), _KEPT)

PARAMETERS: Mapping[str, EndpointRules] = MappingProxyType({
    # Chat Completions, as of openai 3.x
    "model": _same(_KEPT),
    "messages": _same(_IN_PROMPT),
    "tools": _same(_IN_PROMPT),
    "tool_choice": _same(_IN_PROMPT),
    "parallel_tool_calls": _same(_IN_PROMPT),
    "functions": _same(_IN_PROMPT),
    "function_call": _same(_IN_PROMPT),
    "response_format": _same(_IN_PROMPT),
    "reasoning_effort": _same(_IN_PROMPT),
    "stream": _same(_KEPT),
    "stream_options": EndpointRules(_KEPT, ParameterRule("needless", "", "the end always tells the usage"),
                          ParameterRule("needless", "", "the end always tells the usage")),
    "max_completion_tokens": _LIMIT,
    "max_tokens": _LIMIT,
    "temperature": _SAMPLING,
    "top_p": _SAMPLING,
    "seed": _SAMPLING,
    "frequency_penalty": _SAMPLING,
    "presence_penalty": _SAMPLING,
    "stop": EndpointRules(_SHAPED, _SHAPED, ParameterRule("option")),
    "n": EndpointRules(_KEPT, _KEPT, _dropped("it gives one choice", 1)),
    "logit_bias": EndpointRules(_KEPT, _KEPT, _dropped(_NOTHING)),
    "logprobs": _same(_dropped(_SCORES, False)),
    "top_logprobs": _same(_dropped(_SCORES, 0)),
    "user": EndpointRules(_KEPT, _dropped(_NOTHING), _dropped(_NOTHING)),
    "audio": _NO_EQUIVALENT,
    "modalities": _same(_dropped(_NOTHING, ["text"])),
    "prediction": _NO_EQUIVALENT,
    "verbosity": _NO_EQUIVALENT,
    "web_search_options": _NO_EQUIVALENT,
    "moderation": _NO_EQUIVALENT,
    "metadata": _NO_ACCOUNT,
    "prompt_cache_key": _NO_ACCOUNT,
    "prompt_cache_options": _NO_ACCOUNT,
    "prompt_cache_retention": _NO_ACCOUNT,
    "safety_identifier": _NO_ACCOUNT,
    "service_tier": _same(_dropped(_ACCOUNT, "auto", "default")),
    "store": _same(_dropped(_ACCOUNT, False)),
    # what clients of open servers also send
    "reasoning": _same(_IN_PROMPT),
    "think": _same(_IN_PROMPT),
    "chat_template_kwargs": _same(_IN_PROMPT),
    "thinking": _NO_EQUIVALENT,
    "include_reasoning": _same(_dropped(_SEPARATE, True)),
    "separate_reasoning": _same(_dropped(_SEPARATE, True)),
    "stream_reasoning": _same(_dropped(_SEPARATE, True)),
    "top_k": _SAMPLING,
    "min_p": _SAMPLING,
    "typical_p": _SAMPLING,
    "repeat_penalty": _SAMPLING,
    "repetition_penalty": EndpointRules(
        _KEPT, ParameterRule("kept", "repeat_penalty"), ParameterRule("option", "repeat_penalty")
    ),
    "repeat_last_n": _SAMPLING,
    "num_ctx": EndpointRules(_dropped(_OLLAMA_ONLY), _dropped(_OLLAMA_ONLY), _OPTION),
    "structured_outputs": _NO_GRAMMAR,
    "guided_json": _NO_GRAMMAR,
    "guided_regex": _NO_GRAMMAR,
    "guided_choice": _NO_GRAMMAR,
    "guided_grammar": _NO_GRAMMAR,
    "grammar": _NO_GRAMMAR,
    "json_schema": _NO_GRAMMAR,
    "regex": _NO_GRAMMAR,
    "ebnf": _NO_GRAMMAR,
    "format": _NO_GRAMMAR,
    "chat_template": _NO_TEMPLATE,
    "add_generation_prompt": _NO_TEMPLATE,
    "continue_final_message": _NO_TEMPLATE,
    "documents": _NO_TEMPLATE,
    "add_special_tokens": _NO_TEMPLATE,
    "echo": _same(_dropped("the reply is the model's text alone", False)),
    "suffix": _NO_EQUIVALENT,
    "skip_special_tokens": _same(_dropped(_MARKERS, False)),
    "spaces_between_special_tokens": _same(_dropped(_MARKERS, False)),
    "stop_token_ids": EndpointRules(_SHAPED, _dropped(_NOTHING), _dropped(_NOTHING)),
    "return_token_ids": EndpointRules(_SHAPED, _dropped(_NOTHING, False), _dropped(_NOTHING, False)),
    # Ollama's own, set by the application: they override what is converted from the others
    "options": _OLLAMA,
    "keep_alive": _OLLAMA,
    "truncate": _OLLAMA,
    "shift": _OLLAMA,
})  # fmt: skip
"""The rules for each parameter of a request."""

UNKNOWN_PARAMETER = EndpointRules(_KEPT, _KEPT, _dropped("Ollama does not know it"))
"""The rules for any other key: servers know more keys than are listed here; Ollama ignores those it does not know."""


def rule_for(key: str, endpoint: Raw) -> ParameterRule:
    """Return the rule for a key on an endpoint."""
    rule: ParameterRule = getattr(PARAMETERS.get(key, UNKNOWN_PARAMETER), endpoint)
    return rule


def apply_rules(body: Mapping[str, Any], endpoint: Raw) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """Return what is kept of a body, what goes into `options`, and notes on what was dropped, grouped by reason.

    Of two parameters that map to one key, the first in the table wins.
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


def stop_strings(requested: Any) -> list[str]:
    """Return the request's stop strings, followed by those of Harmony, which never occur inside a message."""
    own = [requested] if isinstance(requested, str) else [stop for stop in as_list(requested) if isinstance(stop, str)]
    return list(dict.fromkeys((*own, *END_OF_TURN_TOKENS)))
