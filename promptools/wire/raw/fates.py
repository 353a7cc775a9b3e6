"""The rule for each parameter of a Chat Completions body on each raw endpoint; none is lost silently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from promptools.harmony.tokens import IDS
from promptools.wire.shapes import as_list

if TYPE_CHECKING:
    from promptools.harmony.vocabulary import Decode
    from promptools.profiles.profile import Raw

How = Literal["kept", "option", "shaped", "told", "needless", "dropped"]


class Fate(NamedTuple):
    """The rule for one parameter on one endpoint."""

    how: How
    """`kept`: as it is; `option`: in Ollama's `options`; `shaped`: converted to another value; `told`: expressed by the
    prompt or enforced here; `dropped`: left out, with a note in the trace; `needless`: left out silently, since nothing
    is lost."""
    to: str = ""
    """The name to send it under, if it is another."""
    why: str = ""
    """The reason for dropping it, or why it is needless."""
    harmless: tuple[Any, ...] = ()
    """Values whose loss changes nothing: they are dropped silently."""


class Row(NamedTuple):
    """The rules for one parameter."""

    completions: Fate
    """/v1/completions, of vLLM, SGLang, LM Studio and others."""
    llamacpp: Fate
    """llama.cpp's /completion."""
    generate: Fate
    """Ollama's /api/generate with `raw`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt that the model continues."""

    said: str | tuple[int, ...]
    """Text, or token ids where the endpoint accepts them."""
    room: int
    """The token limit to send, where the request sets none and the endpoint's default would cut the answer."""

    decode: Decode | None = None
    """Decodes the token ids of the reply, which are then requested; None: the reply is read as text."""

    @property
    def sent(self) -> str | list[int]:
        """The prompt as a JSON value."""
        return self.said if isinstance(self.said, str) else list(self.said)


@dataclass(frozen=True, slots=True)
class Written:
    """A request for a raw endpoint."""

    body: dict[str, Any]
    notes: tuple[str, ...] = ()
    """What was left out, as sentences for the trace."""


STOPS = ("<|return|>", "<|call|>")
"""The tokens that end a turn of gpt-oss."""
STOP_IDS: Mapping[int, str] = MappingProxyType({IDS["return"]: STOPS[0], IDS["call"]: STOPS[1]})

_KEPT, _OPTION, _SHAPED, _TOLD = Fate("kept"), Fate("option"), Fate("shaped"), Fate("told")


def _same(fate: Fate) -> Row:
    return Row(fate, fate, fate)


def _dropped(why: str, *harmless: Any) -> Fate:
    return Fate("dropped", "", why, harmless)


_NOTHING = "there is nothing like it"
_ACCOUNT = "it is for OpenAI's own accounts"
_SCORES = "they would be those of Harmony's text, thoughts and markers too"
_GRAMMAR = "a grammar leaves no room for Harmony's own tokens"
_TEMPLATE = "it is for a chat template, and none is applied"
_MARKERS = "the markers are needed to read the reply"
_OLLAMAS = "only Ollama knows it"
_APART = "thoughts always come apart"

_NO_LIKE = _same(_dropped(_NOTHING))
_NO_ACCOUNT = _same(_dropped(_ACCOUNT))
_NO_GRAMMAR = _same(_dropped(_GRAMMAR))
_NO_TEMPLATE = _same(_dropped(_TEMPLATE))
_LIMIT = Row(Fate("kept", "max_tokens"), Fate("kept", "n_predict"), Fate("option", "num_predict"))
_SAMPLING = Row(_KEPT, _KEPT, _OPTION)
_OLLAMA = Row(_dropped(_OLLAMAS), _dropped(_OLLAMAS), _KEPT)

FATES: Mapping[str, Row] = MappingProxyType({
    # Chat Completions, as of openai 3.x
    "model": _same(_KEPT),
    "messages": _same(_TOLD),
    "tools": _same(_TOLD),
    "tool_choice": _same(_TOLD),
    "parallel_tool_calls": _same(_TOLD),
    "functions": _same(_TOLD),
    "function_call": _same(_TOLD),
    "response_format": _same(_TOLD),
    "reasoning_effort": _same(_TOLD),
    "stream": _same(_KEPT),
    "stream_options": Row(_KEPT, Fate("needless", "", "the end always tells the usage"),
                          Fate("needless", "", "the end always tells the usage")),
    "max_completion_tokens": _LIMIT,
    "max_tokens": _LIMIT,
    "temperature": _SAMPLING,
    "top_p": _SAMPLING,
    "seed": _SAMPLING,
    "frequency_penalty": _SAMPLING,
    "presence_penalty": _SAMPLING,
    "stop": Row(_SHAPED, _SHAPED, Fate("option")),
    "n": Row(_KEPT, _KEPT, _dropped("it gives one choice", 1)),
    "logit_bias": Row(_KEPT, _KEPT, _dropped(_NOTHING)),
    "logprobs": _same(_dropped(_SCORES, False)),
    "top_logprobs": _same(_dropped(_SCORES, 0)),
    "user": Row(_KEPT, _dropped(_NOTHING), _dropped(_NOTHING)),
    "audio": _NO_LIKE,
    "modalities": _same(_dropped(_NOTHING, ["text"])),
    "prediction": _NO_LIKE,
    "verbosity": _NO_LIKE,
    "web_search_options": _NO_LIKE,
    "moderation": _NO_LIKE,
    "metadata": _NO_ACCOUNT,
    "prompt_cache_key": _NO_ACCOUNT,
    "prompt_cache_options": _NO_ACCOUNT,
    "prompt_cache_retention": _NO_ACCOUNT,
    "safety_identifier": _NO_ACCOUNT,
    "service_tier": _same(_dropped(_ACCOUNT, "auto", "default")),
    "store": _same(_dropped(_ACCOUNT, False)),
    # what clients of open servers also send
    "reasoning": _same(_TOLD),
    "think": _same(_TOLD),
    "chat_template_kwargs": _same(_TOLD),
    "thinking": _NO_LIKE,
    "include_reasoning": _same(_dropped(_APART, True)),
    "separate_reasoning": _same(_dropped(_APART, True)),
    "stream_reasoning": _same(_dropped(_APART, True)),
    "top_k": _SAMPLING,
    "min_p": _SAMPLING,
    "typical_p": _SAMPLING,
    "repeat_penalty": _SAMPLING,
    "repetition_penalty": Row(_KEPT, Fate("kept", "repeat_penalty"), Fate("option", "repeat_penalty")),
    "repeat_last_n": _SAMPLING,
    "num_ctx": Row(_dropped(_OLLAMAS), _dropped(_OLLAMAS), _OPTION),
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
    "echo": _same(_dropped("the reply is the model's words alone", False)),
    "suffix": _NO_LIKE,
    "skip_special_tokens": _same(_dropped(_MARKERS, False)),
    "spaces_between_special_tokens": _same(_dropped(_MARKERS, False)),
    "stop_token_ids": Row(_SHAPED, _dropped(_NOTHING), _dropped(_NOTHING)),
    "return_token_ids": Row(_SHAPED, _dropped(_NOTHING, False), _dropped(_NOTHING, False)),
    # Ollama's own, set by the application: they override what is converted from the others
    "options": _OLLAMA,
    "keep_alive": _OLLAMA,
    "truncate": _OLLAMA,
    "shift": _OLLAMA,
})  # fmt: skip
"""The rules for each parameter of a request."""

UNKNOWN = Row(_KEPT, _KEPT, _dropped("Ollama does not know it"))
"""The rules for any other key: servers know more keys than are listed here; Ollama ignores those it does not know."""


def fate(key: str, endpoint: Raw) -> Fate:
    """Return the rule for a key on an endpoint."""
    rule: Fate = getattr(FATES.get(key, UNKNOWN), endpoint)
    return rule


def carry(body: Mapping[str, Any], endpoint: Raw) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """Return what is kept of a body, what goes into `options`, and notes on what was dropped, grouped by reason.

    Of two parameters that map to one key, the first in the table wins.
    """
    given = {key: value for key, value in body.items() if value is not None}
    ordered = [*(key for key in FATES if key in given), *(key for key in given if key not in FATES)]
    kept: dict[str, Any] = {}
    options: dict[str, Any] = {}
    dropped: dict[str, list[str]] = {}
    for key in ordered:
        rule = fate(key, endpoint)
        if rule.how == "kept":
            kept.setdefault(rule.to or key, given[key])
        elif rule.how == "option":
            options.setdefault(rule.to or key, given[key])
        elif rule.how == "dropped" and given[key] not in rule.harmless:
            dropped.setdefault(rule.why, []).append(key)
    return kept, options, tuple(f"not sent: {', '.join(keys)}; {why}" for why, keys in dropped.items())


def stops(given: Any) -> list[str]:
    """Return the request's stop strings, followed by those of Harmony, which never occur inside a message."""
    own = [given] if isinstance(given, str) else [stop for stop in as_list(given) if isinstance(stop, str)]
    return list(dict.fromkeys((*own, *STOPS)))
