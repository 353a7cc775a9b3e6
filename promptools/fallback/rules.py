"""The table of known failures: what a server's error text means, and which remedies may help.

The text decides, not the HTTP status, because the same Harmony error has been seen with status 500, 503 and 400, in a
body with status 200, and as an event in a stream. `exchange.failures` uses the status only if no rule matches. Rules
are tried from top to bottom, and the first that matches is used. So a rule for an error text that quotes the model
(`raw='...'`, `at pos 12: ...`) comes before the rules that the quoted text could match by chance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable


# The parameters that a server refuses, according to its error text, and that may be left out.
#
# A parameter is left out only if it changes no answer, or is enforced here instead (`strict`, `parallel_tool_calls`).
# Parameters on which the answer depends are not in the list: `response_format`, `stop`, `tools`, sampling. The limit
# of the answer has two names, and a server that accepts only one of them gets that one.


REASONING_PARAMETERS = ("reasoning_effort", "reasoning", "include_reasoning", "enable_thinking", "chat_template_kwargs")
BUDGET_PARAMETERS = ("thinking_token_budget", "thinking_budget_tokens")
"""The two names, vLLM's and llama.cpp's, of the parameter that limits the number of thinking tokens."""
MESSAGE_PARAMETERS = ("reasoning_content", "refusal", "annotations")
"""Keys of a reply's message that clients send back in the history; servers that do not know them refuse the request."""
HARMLESS_PARAMETERS = (
    "strict",
    "store",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    *BUDGET_PARAMETERS,
    *MESSAGE_PARAMETERS,
)
LIMIT_PARAMETERS = ("max_completion_tokens", "max_tokens")
"""The two names of the parameter that limits the length of the answer."""
COMPANION_PARAMETERS = ("parallel_tool_calls", "stream_options", *REASONING_PARAMETERS)
"""Parameters that have failure rules of their own, but that an error text may refuse together with others."""

# pydantic and FastAPI: `extra_forbidden` (vLLM before 0.6, Mistral, Fireworks); OpenAI: `Unknown parameter`,
# `Unrecognized request argument`; Go and Rust: `unknown field`; Google: `Unknown name`; Groq: `property ... is
# unsupported`; Python: `unexpected keyword argument`; vLLM 0.32: `thinking_token_budget is set but ...`
_NOT_TAKEN = (
    r"(?:extra_forbidden|extra inputs are not permitted|additional properties are not allowed"
    r"|unexpected keyword argument"
    r"|(?:unknown|unrecognized|unsupported) (?:request )?(?:field|name|param(?:eter)?|argument|key|property)s?"
    r"|(?:is|are|was) (?:not (?:supported|permitted|allowed|recognized)|unsupported|unexpected|only allowed)"
    r"|does not support|cannot find field|is set but)"
)
_NEAR = r"[\s\S]{0,80}?"
"""Pattern for the text that may come between a parameter's name and the words that refuse the parameter."""


def refusal_of(names: Iterable[str]) -> str:
    """Return a pattern for error texts that refuse one of these parameters."""
    named = rf"\b(?:{'|'.join(names)})\b"
    return f"{_NOT_TAKEN}{_NEAR}{named}|{named}{_NEAR}{_NOT_TAKEN}"


_COMPILED_REFUSALS = tuple(
    (name, lazy_pattern(refusal_of((name,)), re.IGNORECASE))
    for name in (*HARMLESS_PARAMETERS, *LIMIT_PARAMETERS, *COMPANION_PARAMETERS)
)


def refused_parameters(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the parameters that an error text refuses, among those that may be left out or renamed."""
    texts = tuple(parts)
    return tuple(name for name, pattern in _COMPILED_REFUSALS if any(pattern.search(text) for text in texts))


FailureKind = Literal[
    # reported by the server
    "server_parser",  # its parser failed on the model's call; the call's text may be inside the error
    "harmony",  # its Harmony parser failed on the model's tokens
    "no_native_tools",  # it does not support tools, at least with the options it was started with
    "no_raw",  # its raw endpoint does not exist, or refuses the request
    "beside_tools",  # it refuses something together with tools that it takes without them
    "schema",  # it cannot turn a tool's schema into a grammar
    "tool_choice",  # it refuses this `tool_choice`
    "tool_type",  # it refuses a tool that is not a function
    "ids",  # it requires another format of tool call ids
    "history",  # it cannot read the tool calls in the conversation so far
    "roles",  # its template requires another order of roles
    "system_place",  # its template takes no system message after the beginning, or no `developer`
    "template",  # its chat template failed
    "reasoning_param",  # it refuses a reasoning parameter for this model
    "tool_media",  # it refuses an image inside a tool result, or the mode has no place for a part of the conversation
    "null_content",  # it requires a string where `content` was null
    "content_parts",  # it requires a string where `content` was a list of parts
    "stream_options",  # it does not know `stream_options`
    "parallel",  # it does not know `parallel_tool_calls`
    "empty_tools",  # it refuses an empty list of tools
    "unknown_param",  # it does not take a parameter that changes no answer
    "grammar",  # its grammar, which forces a call, rejected the model's tokens
    "overflow",  # the prompt is longer than its context
    "crashed",  # any other HTTP 500: its parser may have failed on the model's call
    "refused",  # any other error: forwarded unchanged
    # observed in the server's behaviour
    "cut",  # the stream ended without a `finish_reason`
    "swallowed",  # tokens were spent, nothing was sent: the server dropped the model's call
    "empty_calls",  # it signals calls and sends none
    "garbled",  # the reply does not follow the API
    "too_large",  # the reply is longer than the limit
    "connect",  # no connection
    "timeout",  # no response in time
    # caused by the model
    "malformed",  # every call is malformed
    "truncated",  # the reply was cut inside its only call
    "unknown_tool",  # a tool that was not offered
    "choice",  # the reply violates `tool_choice`
    "format",  # the answer violates `response_format`
]

Adaptation = Literal[
    "relax_schema",  # send simpler copies of the tools' schemas
    "tool_choice",  # weaken it: named, then required with that tool alone, then auto with an instruction
    "functions_only",  # leave out tools that are not functions
    "ids",  # nine letters and digits, which every server takes
    "object_history",  # arguments in the history as objects, not strings
    "roles",  # merge neighbouring messages so that roles alternate
    "no_reasoning",  # leave out the reasoning parameters
    "null_content",  # "" instead of null
    "plain_content",  # parts joined to a string
    "no_stream_options",
    "no_parallel",
    "system_first",  # one system message at the beginning, later ones as the user's
    "no_empty_tools",
    "without_params",  # leave out, or rename, the parameters that the server names
    "no_grammar",  # ask for the call in the prompt, and leave `strict` out
    "fit",  # request a longer context, where the API can
    "format",  # request the answer in its format, without tools: a grammar may then enforce it
]
"""A change to a request that failed. The changed request is sent in the same mode."""

RetryAction = Literal[
    "salvage",  # extract the call from the error's text, without another generation
    "correct",  # ask again in the same mode, with the errors as feedback
    "next",  # the next mode
    "again",  # the same request once more, if no mode is left: another sample may succeed
]
Remedy: TypeAlias = Adaptation | RetryAction


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table: an error text that matches `pattern` anywhere, ignoring case, is a failure of kind `kind`."""

    kind: FailureKind
    pattern: str
    source: str


RULES: tuple[Rule, ...] = (
    Rule("tool_type", r"\Afailed to parse tools: ", "llama.cpp b11549, which quotes all tools after it"),
    Rule("server_parser", r"error parsing tool call", "Ollama 0.11 to 0.32: ollama#12064, ollama#17638"),
    Rule("server_parser", r"failed to parse input at pos \d+", "llama.cpp: llama.cpp#23838, #20761"),
    Rule("server_parser", r"does not match the expected .{0,40}format", "llama.cpp b10500 and later, peg-native"),
    Rule("history", r"failed to parse tool call arguments as json", "llama.cpp: broken arguments in the history"),
    Rule("server_parser", r"failed to parse tool call", "LM Studio 0.3.23: lmstudio-bug-tracker#942"),
    Rule("server_parser", r"xml syntax error on line", "Ollama qwen3-coder parser: ollama#12380"),
    Rule(
        "server_parser",
        r"\Afailed to parse json: |failed to parse (?:xml|laguna|function call|arguments).{0,200}"
        r"(?:invalid character|unexpected end|value looks like|syntax error)",
        "Ollama 0.32.15: its qwen3, glm46, laguna and olmo3 parsers, followed by Go's own error",
    ),
    Rule(
        "server_parser",
        r"incomplete glm tool call|mismatched arg_key and arg_value|required argument .{1,80} is missing for tool"
        r"|tool .{1,80} is not declared|\Atool '.{1,80}' not found\Z|\Aempty function name\Z",
        "Ollama 0.32.15: its glm46, qwen3 and ministral parsers",
    ),
    Rule("server_parser", r"returned invalid tool call arguments", "Ollama 0.32 over llama-server"),
    Rule("server_parser", r"unexpected empty grammar stack", "llama.cpp's grammar, seen through Ollama 0.32"),
    Rule("server_parser", r"\Aeof\Z", "Ollama 0.32 qwen3-coder parser on a JSON body"),
    Rule("harmony", r"structure_info not used with harmonyparser", "SGLang: sglang#19074"),
    Rule("harmony", r"harmonyerror", "openai-harmony under vLLM: vllm#23567, vllm#51977"),
    Rule("harmony", r"unexpected tokens remaining in message header", "openai-harmony: vllm#51977, harmony#38"),
    Rule("harmony", r"could not decode header", "openai-harmony 0.0.8"),
    Rule("harmony", r"unexpected eos while waiting for message header", "openai-harmony 0.0.8"),
    Rule("harmony", r"unexpected token \d+ while expecting start token", "vLLM 0.10 to 0.28: vllm#22515, #46464"),
    Rule("harmony", r"unknown role:|channel marker present but no channel", "vLLM 0.16: tenstorrent/vllm#386"),
    Rule("harmony", r"header did not contain a role", "openai-harmony: vllm-rbln#971"),
    Rule("harmony", r"expected 2 output messages", "vLLM August 2025 and SGLang: vllm#22403"),
    Rule("harmony", r"not supported for gpt-oss yet", "vLLM 0.10.0-gptoss"),
    Rule("no_native_tools", r"requires? --enable-auto-tool-choice", "vLLM: langchain4j#3475"),
    Rule("no_native_tools", r"requires `?--tool-call-parser", "vLLM 0.28 to 0.32, required and named: vllm#55754"),
    Rule("no_native_tools", r"does not support tools", "Ollama: ollama#6027, ollama#14795"),
    Rule("no_native_tools", r"requires --jinja", "llama.cpp without --jinja: ramalama#988"),
    Rule("no_native_tools", r"unsupported param: (?:tools|functions)", "llama.cpp b4369: llama.cpp#10920"),
    Rule("no_native_tools", r"received tools but model does not support", "LM Studio and kin"),
    Rule("no_native_tools", r"function calling is not supported by", "litellm 1.109, of providers without functions"),
    Rule("beside_tools", r"not supported with tools", "llama.cpp b11549: logprobs in a stream"),
    Rule("beside_tools", r"cannot use custom grammar constraints with tools", "llama.cpp b11549: a grammar"),
    Rule("overflow", r"exceeds? the available context size", "llama.cpp; Ollama 0.32 over it, with truncate false"),
    Rule("overflow", r"context size has been exceeded", "llama.cpp: in a stream, the answer filled the context"),
    Rule("overflow", r"maximum context length (?:is|of) \d+ tokens", "vLLM 0.8 to 0.32; llama-cpp-python; SGLang 0.5"),
    Rule("overflow", r"max_tokens=\d+ cannot be greater than max_model_len", "vLLM 0.28 to 0.32, /v1/completions"),
    Rule("overflow", r"exceeds the maximum allowed length|longer than the model's context length", "SGLang 0.5"),
    Rule("overflow", r"prompt is longer than the context length|input length exceeds the context", "Ollama 0.12, 0.32"),
    Rule("overflow", r"input length \(\d+ tokens\) exceeds the model's maximum", "Ollama 0.32.15: its MLX runner"),
    Rule("overflow", r"trying to keep the first \d+ tokens when context the overflows", "LM Studio 0.3"),
    Rule("overflow", r"initial prompt is greater than the context length|reached context length of", "LM Studio 0.3"),
    Rule("schema", r"json schema conversion failed|json schema error at", "llama.cpp: llama.cpp#26930, #19716"),
    Rule("schema", r"unrecognized schema", "llama.cpp, LM Studio: llama.cpp#19716, lmstudio-bug-tracker#2247"),
    Rule("schema", r"no such schema .{0,80}located in", "LM Studio: lmstudio-bug-tracker#738"),
    Rule("schema", r"pattern must start with", "llama.cpp, LM Studio 0.4.19: llama.cpp#26930"),
    Rule("schema", r"failed to parse grammar", "llama.cpp: llama.cpp#27580, #25746"),
    Rule("schema", r"not supported by xgrammar", "vLLM 0.8: vllm#16880"),
    Rule("schema", r"cannot unmarshal .{0,80}tools\.function\.parameters", "Ollama: ollama#10328, #14256"),
    Rule("schema", r"array type must have items", "Copilot: Unity-MCP#440"),
    Rule("schema", r"unsupported top-level schema keyword", "Copilot over LM Studio: lmstudio-copilot-provider#2"),
    Rule(
        "tool_choice",
        r"thinking.{0,80}tool_choice|tool_choice.{0,120}thinking",
        "DeepSeek's API: DeepSeek-V3#1376; Alibaba's and Anthropic's, by their documentation",
    ),
    Rule(
        "empty_tools",
        r"\btools\b.{0,60}\b(?:empty|at least (?:1|one))\b|too short.{0,20}\btools\b",
        "vLLM 0.32: open-webui#26655; OpenAI's API and others like it",
    ),
    Rule("grammar", r"failed to advance fsm|grammar rejected tokens", "vLLM: vllm#49981, #46149, #37742"),
    Rule("tool_choice", r"invalid tool_choice", "LM Studio: lmstudio-bug-tracker#670; llama.cpp"),
    Rule("tool_choice", r"`?tool_choice`? must (?:either )?be", "vLLM before 0.8: pydantic-ai#224"),
    Rule("tool_choice", r"when using `?tool_choice`?, `?tools`? must be set", "vLLM: vllm#9426"),
    Rule("tool_choice", r"only fast tokenizers are supported", "vLLM, Mistral with required: vllm#16887"),
    Rule("tool_choice", r"unsupported param: tool_choice", "llama.cpp b4369, as of tools: llama.cpp#10920"),
    Rule("tool_type", r"'type' of tool must be 'function'|tool type \w+ not supported", "llama.cpp: codex#10635"),
    Rule("ids", r"tool call id was", "mistral-common under vLLM: vllm#9019"),
    Rule("history", r"can only get item pairs from a mapping", "Qwen3-Coder's template: Qwen3-Coder#444"),
    Rule("history", r"tool_calls\.function\.arguments", "Ollama /api/chat: ollama#12794"),
    Rule("history", r"value looks like object, but can't find", "Ollama 0.32 /api/chat: arguments as a string"),
    Rule("history", r"invalid tool call arguments", "Ollama 0.32 /v1: broken or empty arguments in the history"),
    Rule("roles", r"roles must alternate", "Mistral, Gemma templates: autogen#3597"),
    Rule(
        "system_place",
        r"system (?:message|prompt|role)s? .{0,60}\b(?:beginning|start|first)\b",
        "Qwen3.5 to 3.8's templates: llama.cpp#27367, ollama#17774, vllm#44505, vllm#46976",
    ),
    Rule("system_place", r"unexpected message role", "Qwen3.5's template, of a `developer` message: vllm#46976"),
    Rule("system_place", r"messages\[\d+\]\.role.{0,40}developer", "DeepSeek's API, which knows no `developer`"),
    Rule(
        "roles", r"system role not supported|no user query found", "Gemma; Qwen3 templates: lmstudio-bug-tracker#1586"
    ),
    Rule("reasoning_param", r"does not support thinking|(?<!invalid )think value", "Ollama: crush#2623"),
    Rule("reasoning_param", r"does not expose reasoning configuration", "LM Studio: lmstudio-bug-tracker#2008"),
    Rule("reasoning_param", r"reasoning_effort.{0,40}not supported", "litellm 1.109, of OCI"),
    Rule("reasoning_param", r"does not support parameters: .{0,80}'reasoning_effort'", "litellm 1.109"),
    Rule("tool_media", r"only text tool_result blocks|invalid 'messages' in payload", "LM Studio: qwen-code#3616"),
    Rule("tool_media", r"output of tool call should be|only supports text content", "llama.cpp#23542; vllm#43203"),
    Rule("content_parts", r"cannot unmarshal array into .{0,40}messages\.content", "Ollama /api/chat"),
    Rule(
        "content_parts",
        r"content.{0,40}(?:expected string, received (?:array|object))",
        "LM Studio 0.3.30, lmstudio-bug-tracker#1077",
    ),
    Rule("null_content", r"content.{0,60}(?:none is not an allowed|received null)", "servers on pydantic 1 and zod"),
    Rule("template", r"jinja|unable to generate parser for this template", "llama.cpp, LM Studio: jan#6123"),
    Rule("template", r"value is not callable|chat template", "llama.cpp: jan#6123; vLLM 0.32, transformers"),
    Rule(
        "template",
        r"missing required fields in tool call template|failed to find tool template|no template objects found",
        "Ollama 0.9.0: ollama#11155",
    ),
    Rule("unknown_param", refusal_of(HARMLESS_PARAMETERS), "OpenAI, Mistral, Groq, Google; vLLM before 0.6 and 0.32"),
    Rule("unknown_param", refusal_of(LIMIT_PARAMETERS), "OpenAI, of reasoning models; servers before 2024-10"),
    Rule("reasoning_param", refusal_of(REASONING_PARAMETERS), "OpenAI, Mistral, Groq, Google; vLLM before 0.6"),
    Rule("stream_options", r"stream_options", "servers before 2024-06, such as vLLM: worker-vllm#85"),
    Rule("parallel", r"parallel_tool_calls", "servers before 2024-07, such as vLLM: worker-vllm#85"),
)

REMEDIES: dict[FailureKind, tuple[Remedy, ...]] = {
    "server_parser": ("salvage", "next", "again"),
    "harmony": ("salvage", "next", "again"),
    "no_native_tools": ("next",),
    "no_raw": ("next",),
    "beside_tools": ("next",),
    "schema": ("relax_schema", "next"),
    "tool_choice": ("tool_choice", "next"),
    "tool_type": ("functions_only", "next"),
    "ids": ("ids", "next"),
    "history": ("object_history", "next"),
    "roles": ("roles", "next"),
    "system_place": ("system_first",),
    "template": ("next",),
    "reasoning_param": ("no_reasoning",),
    "tool_media": ("next",),
    "null_content": ("null_content",),
    "content_parts": ("plain_content",),
    "stream_options": ("no_stream_options",),
    "parallel": ("no_parallel",),
    "empty_tools": ("no_empty_tools",),
    "unknown_param": ("without_params",),
    "grammar": ("no_grammar", "next", "again"),
    "overflow": ("fit",),
    "crashed": ("no_grammar", "next"),
    "refused": (),
    "cut": ("next", "again"),
    "swallowed": ("correct", "next", "again"),
    "empty_calls": ("next", "again"),
    "garbled": ("next", "again"),
    "too_large": (),
    "connect": (),
    "timeout": ("no_grammar",),
    "malformed": ("correct", "next"),
    "truncated": ("next",),
    "unknown_tool": ("correct",),
    "choice": ("correct", "next"),
    "format": ("format", "correct"),
}
"""The remedies for a failure, in the order in which they are tried. The error is forwarded if there are none.

`exchange.retry` carries out `salvage`, which recovers calls, or an answer if the request accepts no calls, from the
error's text. `exchange.plan` tries the other remedies: `again` once per exchange, and each adaptation once per mode,
except that `tool_choice` and `without_params` may be repeated.
"""

REFUSAL_KINDS: frozenset[FailureKind] = frozenset({
    "schema", "tool_choice", "tool_type", "ids", "history", "roles", "system_place", "reasoning_param", "null_content",
    "content_parts", "stream_options", "parallel", "empty_tools", "unknown_param", "grammar",
})  # fmt: skip
"""Failures in which the server refuses a part of the request, but may accept the request once this part is changed."""

LASTING_KINDS: frozenset[FailureKind] = frozenset({"no_native_tools"})
"""Failures that last for as long as the server runs: a single one opens the circuit of the `Breaker`."""

COUNTED_KINDS: Mapping[FailureKind, str] = MappingProxyType(
    {
        "server_parser": "its parser is the same for every request",
        "harmony": "its Harmony parser is the same for every request",
        "no_native_tools": "it is a fact about the server as it was started",
        "no_raw": "its raw endpoint is there for no request, or for all",
        "template": "its chat template is the same for every request",
        "crashed": "an HTTP 500 is a fault that the server reports of itself; counted if another mode does better",
        "cut": "it ended a stream before the end",
        "swallowed": "it lost what the model wrote",
        "empty_calls": "it lost the calls that it speaks of",
        "garbled": "it does not keep to the API",
    }
)
"""Failures that the breaker counts, each with the reason why it is counted.

Such a failure depends on the server and the mode, not on the app that sends the request. If the breaker counted other
failures, one app's requests would disable a mode for all other apps.
"""

_COMPILED = tuple((lazy_pattern(rule.pattern, re.IGNORECASE), rule) for rule in RULES)
SEARCHED_HEAD = 4_000
"""Number of characters that the rules search at the start of an error text."""
SEARCHED_TAIL = 2_000
"""Number of characters that the rules search at the end of an error text, where a Python traceback names its error."""


def classify(text: str) -> FailureKind:
    """Return the kind of failure that a server's error text reports; `refused` if no rule matches."""
    rule = match_rule(text)
    return rule.kind if rule else "refused"


def match_rule(text: str) -> Rule | None:
    """Return the first rule that matches the start of an error text, else the first that matches its end, else None."""
    matches = (rule for part in searched_parts(text) for pattern, rule in _COMPILED if pattern.search(part))
    return next(matches, None)


def searched_parts(text: str) -> tuple[str, ...]:
    """Return the parts of an error text that are searched: its start and, if the text is long, its end."""
    head, end = text[:SEARCHED_HEAD].strip(), text[max(SEARCHED_HEAD, len(text) - SEARCHED_TAIL) :].strip()
    return (head, f"...{end}") if end else (head,)  # with the dots before it, no `\A` matches


# Extract the model's own text from a server's error text: it is already generated, so it is used before a retry.


# Ollama 0.11 to 0.32 (ollama#12064, #17638): error parsing tool call: raw='<arguments>', err=<Go error>
_OLLAMA_PREFIX = lazy_pattern(r"error parsing tool call: raw='", re.IGNORECASE)
_OLLAMA_SUFFIX = "', err="
# llama.cpp (llama.cpp#23838): Failed to parse input at pos <n>: <the reply from there on, or all of it>
_LLAMACPP_PREFIX = lazy_pattern(r"failed to parse input at pos \d+: ?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelText:
    """The model's text that a server quotes in its error.

    If `kind` is `arguments`, the text is a call's arguments, without the tool's name. If it is `reply`, the text is all
    or part of a reply.
    """

    kind: Literal["arguments", "reply"]
    text: str


def introduces_model_text(text: str) -> bool:
    """Return whether the start of an error text announces that the model's text follows."""
    return any(prefix.search(text, 0, SEARCHED_HEAD) for prefix in (_OLLAMA_PREFIX, _LLAMACPP_PREFIX))


def find_model_text(text: str) -> ModelText | None:
    """Return the model's text inside an error text; None if there is none.

    The words that introduce the model's text are searched for only in the first `SEARCHED_HEAD` characters. The words
    that follow the model's text are searched for backward from the end.
    """
    if match := _OLLAMA_PREFIX.search(text, 0, SEARCHED_HEAD):
        start = match.end()
        end = text.rfind(_OLLAMA_SUFFIX)
        # without the suffix the error text itself was cut, so the arguments may lack their end
        return ModelText("arguments", text[start:end]) if end >= start else None
    if match := _LLAMACPP_PREFIX.search(text, 0, SEARCHED_HEAD):
        raw = text[match.end() :]
        return ModelText("reply", raw) if raw.strip() else None
    return None
