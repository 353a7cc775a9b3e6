"""Define `Profile`, a flat record of facts on what an endpoint and a model can do, each with a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from promptools.types import ModeName, ToolPlacement

Wire = Literal["chat", "ollama"]
Raw = Literal["completions", "llamacpp", "generate"]
TemplateEndpoint = Literal["llamacpp", "tokenize", "ollama"]
Api = Wire | Raw
"""The APIs of servers that promptools can use."""
ToolChoice = Literal["auto", "none", "required", "named"]
Constrained = Literal["response_format", "structured_outputs", "json_schema", "format"]
ToolIds = Literal["any", "alnum9"]
ReasoningField = Literal["reasoning", "reasoning_content", "thinking"]
HistoryArguments = Literal["string", "object"]
Sampling = Literal[
    "top_k", "min_p", "typical_p", "repeat_penalty", "repetition_penalty", "repeat_last_n", "mirostat", "mirostat_tau",
    "mirostat_eta",
]  # fmt: skip
Placement = Literal["prepend", "append", "replace"]
SystemPlace = Literal["anywhere", "first"]
OnRepeat = Literal["hint", "answer", "off"]
ThinkingBudget = Literal["thinking_token_budget", "thinking_budget_tokens"]
NumCtx = Literal["fit", "server"] | int

GENERIC = "openai-compatible"
"""The kind of server that is assumed if only the server's API is known."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The facts about one server and model: what they can do, and how requests to them must be written."""

    kind: str = GENERIC
    """The kind of server: the provider's `kind`, or the provider's name if that is a kind, or what a probe detected."""
    family: str | None = None
    """The model's family; None if it is not known."""

    # How to reach it
    wire: Wire = "chat"
    """The upstream API: OpenAI Chat Completions, or Ollama's own /api/chat."""
    raw: Raw | None = None
    """The raw endpoint, which completes a prompt without a chat template; None if the server has none.

    It is /v1/completions, llama.cpp's /completion, or Ollama's /api/generate. Without it, raw mode and harmony mode are
    impossible.
    """
    raw_ids: bool = False
    """Whether the raw endpoint takes token ids (as a prompt and in `stop_token_ids`) and `skip_special_tokens`."""
    template_endpoint: TemplateEndpoint | None = None
    """How the server renders its own chat template for raw mode; if None, raw mode needs `chat_template`.

    It is llama.cpp's /apply-template, /tokenize of vLLM and SGLang, or Ollama's /api/chat with `_debug_render_only`.
    """
    chat_template: str | None = None
    """Path of a Jinja chat template that raw mode renders itself, or of a `tokenizer_config.json` that contains one."""
    template_dialect: str | None = None
    """The format of calls (dialect) in the model's chat template; None means the family's format, if known."""
    learn: bool = True
    """Whether the format of calls is learned from the chat template if the model's family is not known."""
    context: int | None = None
    """Maximum number of tokens of a prompt and its reply together; None if not known."""
    needs_key: bool = True
    """Whether it is an error if the variable that `api_key_env` names is not set. Local servers need no key."""
    num_ctx: NumCtx = "fit"
    """Context size to request from Ollama's /api/chat, in tokens.

    `fit` means the server's default, or more if a request needs more. `server` always means the server's default.
    """
    num_ctx_limit: int = 131_072
    """Maximum context size that is requested if `num_ctx` is `fit`, in tokens.

    It is the size for which the model was trained, or what the memory allows.
    """

    # How to ask for tools
    modes: tuple[ModeName, ...] = ("native", "prompt")
    """Modes, in the order in which they are tried."""
    harmony_last: bool = True
    """Whether harmony mode is tried last after a failure of kind `harmony`, even if `modes` does not list it.

    False if a config or an override sets `modes`.
    """
    dialect: str = "json"
    """The format of calls (dialect) that prompt mode asks the model to use."""
    system_prompt_placement: Placement = "prepend"
    """Where a configured system prompt is put: before the tools block, after it, or in place of the request's own."""
    thinking: bool = True
    """Whether the model takes options such as `reasoning_effort` and `think`; if not, they are not sent."""
    thinking_budget: ThinkingBudget | None = None
    """The request key under which the server takes a budget of thinking tokens; None if it has no such key."""
    tool_choice: frozenset[ToolChoice] = frozenset(("auto", "none", "required", "named"))
    """Values of `tool_choice` that the server honors. Other values are never sent; promptools enforces them itself."""
    parallel_tool_calls: bool = True
    """Whether the server honors `parallel_tool_calls`; if not, promptools enforces it instead of sending it."""
    strict_tools: bool = True
    """Whether the server takes `strict` in a tool; if not, promptools enforces it instead of sending it."""
    n: bool = True
    """Whether the server honors `n`; if not, promptools sends n requests for n choices."""
    constrained: Constrained | None = None
    """The request key that constrains the reply to a JSON Schema; None if the server has no reliable key for this."""
    constrained_ok: bool = True
    """Whether constrained decoding may be used with this model. Grammars garble Harmony on some engines."""
    format_beside_tools: bool = False
    """Whether a reply that `response_format` constrains may still hold calls.

    If not, the format is described in the prompt instead, and an answer that does not fit the format is requested
    again without tools.
    """
    relax_schema: bool = False
    """Whether the server fails on valid JSON Schemas. It then gets a relaxed copy; the original validates replies."""
    tool_names: str = r"[a-zA-Z0-9_-]{1,64}"
    """Regular expression that the whole name of a tool must match; other names are replaced by names that match."""
    sampling: frozenset[Sampling] = frozenset()
    """Sampling parameters beyond OpenAI's that the server takes. Others are left out of a client's Ollama `options`."""
    template_kwargs: bool = False
    """Whether the server passes `chat_template_kwargs`, which switch thinking on and off, to the model's template."""

    # How an agent asks (the option `agent`)
    agent_modes: tuple[ModeName, ...] = ()
    """Modes for the requests of an agent, in the order in which they are tried; if empty, `modes` is used."""
    agent_tools_in: ToolPlacement = "developer"
    """Which message declares an agent's tools in harmony mode, unless the option `tools_in` names another."""
    agent_effort: str | None = None
    """The `reasoning_effort` for an agent's request that sets none; if None, none is sent."""
    agent_temperature: float | None = None
    """The temperature for an agent's request that sets none; if None, none is sent."""
    agent_room: int | None = None
    """Minimum number of tokens for an agent's reply if a raw endpoint needs a limit; None means the usual minimum."""
    trained_tools: tuple[str, ...] = ()
    """Tools on which the model was trained.

    With the option `tools_in="auto"`, harmony mode declares the namespaces of these tools in the system message.
    """

    # How to write the conversation
    tool_ids: ToolIds = "any"
    """Form of call ids: `alnum9` means exactly nine characters of a-z, A-Z and 0-9."""
    alternate_roles: bool = False
    """Whether the template demands strict user/assistant turns; if so, adjacent messages of one role are merged."""
    system_role: bool = True
    """Whether the template takes a system message; if not, its text is put into the first user message."""
    system_place: SystemPlace = "anywhere"
    """Where the template takes system messages.

    `first` means only one, at the beginning. System messages that open the conversation are then joined, and each later
    one becomes, in its place, a user message that is marked as a system message.
    """
    history_arguments: HistoryArguments = "string"
    """Form of a past call's arguments: JSON text as in OpenAI's API, or an object."""
    null_content: bool = True
    """Whether the content of an assistant message with calls may be null; if not, an empty string is sent."""
    content_parts: bool = True
    """Whether the content of a message may be a list of parts; if not, text parts are joined into one string."""
    result_parts: bool = True
    """Whether the content of a tool message may be a list of parts; if not, the parts are joined into one string."""
    on_repeat: OnRepeat | None = None
    """What is done if the conversation repeats a call, unless the option `on_repeat` is set.

    `hint` adds a line for the model, `answer` asks for an answer without calls, and `off` does nothing. None means
    `hint`, but only in the modes whose prompt promptools writes.
    """
    reasoning_field: ReasoningField = "reasoning_content"
    """Key under which past reasoning is sent back. In replies, reasoning is read from every known key."""
    strip_billing_header: bool = True
    """Whether the line `x-anthropic-billing-header`, which Claude Code puts into each system prompt, is left out.

    The line changes from request to request. If it were sent, the server could not reuse its cache of the prompt.
    """
    control_tokens: tuple[str, ...] | None = None
    """Tokens that the model's tokenizer or template reads as markup wherever they occur.

    They are escaped in text that is not meant as markup. `{n}` is any number, and `{word}` is letters, digits and
    `_:/.-`. None means the tokens of all families.
    """

    # How to read the reply
    accept: tuple[str, ...] | None = None
    """Formats (dialects) in which calls are recognized in text, besides the one for prompt mode; None means all."""
    in_reasoning: bool = False
    """Whether the template opens the reasoning block itself, and the server leaves the reasoning in the content."""
    stream_usage: bool = True
    """Whether the server takes `stream_options.include_usage`."""
    swallows: bool = True
    """Whether an empty answer that cost tokens counts as a reply that the server lost, and is requested again."""
    cuts_streams: bool = False
    """Whether the server cuts a streamed reply at call tags that the reply only quotes.

    Arguments then end inside a string, and the rest of a text is lost. So arguments are passed on only once they are
    one whole JSON value.
    """


# Hosts of OpenAI, or of Azure with OpenAI's models. Their APIs do more than Chat Completions can express.
#
# These hosts reliably enforce the format of an answer that a request asks for, so this format is not healed.


_ENDS = ("api.openai.com", ".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")


def is_openai_host(host: str) -> bool:
    """Return whether a host is one of OpenAI's or Azure's."""
    return host.endswith(_ENDS)


def is_openai_url(url: str) -> bool:
    """Return whether a URL leads to OpenAI or Azure; false for an invalid URL."""
    try:
        return is_openai_host((urlsplit(url).hostname or "").lower())
    except ValueError:
        return False
