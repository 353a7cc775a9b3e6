"""What an endpoint and a model can do: one flat record of facts, each with its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from promptools.types import ModeName, ToolPlacement

Wire = Literal["chat", "ollama"]
Raw = Literal["completions", "llamacpp", "generate"]
TemplateEndpoint = Literal["llamacpp", "tokenize", "ollama"]
Api = Wire | Raw
"""Any upstream API."""
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
"""The kind of an unknown server."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The capabilities of one endpoint and model."""

    kind: str = GENERIC
    """The kind of server. Never guessed: a provider's `kind`, or its name when that is a kind."""
    family: str | None = None
    """The model's family, by its name; None when no family matches."""

    # How to reach it
    wire: Wire = "chat"
    """The upstream API: OpenAI Chat Completions, or Ollama's own /api/chat."""
    raw: Raw | None = None
    """The raw endpoint, which completes a prompt without a chat template: /v1/completions, llama.cpp's /completion, or
    Ollama's /api/generate. None: there is none, and so no harmony mode."""
    raw_ids: bool = False
    """Whether the raw endpoint takes token ids: as a prompt, in `stop_token_ids`, and with `skip_special_tokens`."""
    template_endpoint: TemplateEndpoint | None = None
    """How the server renders its own chat template for raw mode: llama.cpp's /apply-template, /tokenize of vLLM and
    SGLang, or Ollama's /api/chat with `_debug_render_only`. None: it does not, and raw mode needs `chat_template`."""
    chat_template: str | None = None
    """Path of a Jinja chat template, or of a `tokenizer_config.json` with one, which raw mode renders itself."""
    template_dialect: str | None = None
    """The dialect in which the model's chat template writes calls; None: as its family's does, if that is known."""
    learn: bool = True
    """Whether the format of calls is learned from the chat template of a model whose family is not known."""
    context: int | None = None
    """Maximum number of tokens of a prompt and its reply together; None if not known."""
    needs_key: bool = True
    """Whether it is an error if the variable that `api_key_env` names is not set. Local servers need no key."""
    num_ctx: NumCtx = "fit"
    """Context to request from Ollama's /api/chat, in tokens. `fit`: the server's default, and more when a request needs
    it; `server`: always the server's default."""
    num_ctx_limit: int = 131_072
    """The most that `fit` may request, in tokens: what the model was trained for, or what the memory allows."""

    # How to ask for tools
    modes: tuple[ModeName, ...] = ("native", "prompt")
    """Modes, in the order in which they are tried."""
    harmony_last: bool = True
    """Whether harmony mode is tried last after a failure of kind `harmony`, even if `modes` does not list it. A config
    or an override that sets `modes` makes it false."""
    dialect: str = "json"
    """Dialect that prompt mode requests."""
    system_prompt_placement: Placement = "prepend"
    """Where a configured system prompt goes: before the tools block, after it, or in place of the request's own."""
    thinking: bool = True
    """Whether the model takes `reasoning_effort`, `think` and the like; if not, they are not sent."""
    thinking_budget: ThinkingBudget | None = None
    """The request key under which the server takes a budget of thinking tokens; None: it has none."""
    tool_choice: frozenset[ToolChoice] = frozenset(("auto", "none", "required", "named"))
    """Values of `tool_choice` that the server honors; the others are never sent, and promptools enforces them."""
    parallel_tool_calls: bool = True
    """Whether the server honors `parallel_tool_calls`; if not, it is not sent, and promptools enforces it."""
    strict_tools: bool = True
    """Whether the server takes `strict` in a tool; if not, it is not sent, and promptools enforces it."""
    n: bool = True
    """Whether the server honors `n`; if not, n choices cost n requests."""
    constrained: Constrained | None = None
    """The request key that constrains the reply to a JSON Schema; None: it has no reliable one."""
    constrained_ok: bool = True
    """Whether constrained decoding may be used with this model. Grammars garble Harmony on some engines."""
    format_beside_tools: bool = False
    """Whether a reply that `response_format` constrains may still hold calls. If not, the format is described in the
    prompt instead, and an answer that does not fit is requested again without tools."""
    relax_schema: bool = False
    """Whether the server fails on valid JSON Schema. It then gets a relaxed copy; the original validates the reply."""
    tool_names: str = r"[a-zA-Z0-9_-]{1,64}"
    """Regular expression that a whole tool name must match; other names are sent in a mapped form."""
    sampling: frozenset[Sampling] = frozenset()
    """Sampling parameters that the server takes beside OpenAI's own; others of Ollama's `options` are left out."""
    template_kwargs: bool = False
    """Whether the server passes `chat_template_kwargs` to the model's template. They switch thinking on and off."""

    # How an agent asks (the option `agent`)
    agent_modes: tuple[ModeName, ...] = ()
    """Modes for the requests of an agent, in the order in which they are tried; none: those of `modes`."""
    agent_tools_in: ToolPlacement = "developer"
    """Harmony mode: the message that declares an agent's tools, unless an option names it."""
    agent_effort: str | None = None
    """The `reasoning_effort` of an agent's request that sets none; None: none is sent."""
    agent_temperature: float | None = None
    """The temperature of an agent's request that sets none; None: none is sent."""
    agent_room: int | None = None
    """The least tokens that a reply to an agent gets where a raw endpoint has to be told; None: as any reply."""
    trained_tools: tuple[str, ...] = ()
    """Tools that the model was trained on. Their namespaces are those that `auto` puts into the system message."""

    # How to write the conversation
    tool_ids: ToolIds = "any"
    """Form of call ids: `alnum9` is exactly nine of a-z, A-Z, 0-9."""
    alternate_roles: bool = False
    """Whether the template demands strict user/assistant turns. Then adjacent messages of one role are merged."""
    system_role: bool = True
    """Whether the template takes a system message; if not, its text is put into the first user message."""
    system_place: SystemPlace = "anywhere"
    """Where the template takes system messages. `first`: one, at the beginning; those that open the conversation are
    joined, and later ones are sent in their places as the user's, marked."""
    history_arguments: HistoryArguments = "string"
    """Form of a past call's arguments: JSON text as in OpenAI's API, or an object."""
    null_content: bool = True
    """Whether an assistant message's content may be null beside its calls; if not, it is the empty string."""
    content_parts: bool = True
    """Whether content may be a list of parts; if not, text parts are joined into one string."""
    result_parts: bool = True
    """Whether a tool message's content may be a list of parts; if not, it is joined into one string."""
    on_repeat: OnRepeat | None = None
    """What is done about a call that the history repeats, unless the options decide it. None: `hint` in
    the modes whose prompt we write."""
    reasoning_field: ReasoningField = "reasoning_content"
    """Key under which past reasoning is sent back. In replies every known key is read."""
    strip_billing_header: bool = True
    """Whether the line `x-anthropic-billing-header`, which Claude Code puts into the system prompt of each request, is
    left out: it changes from request to request, and so the server could reuse no prefix."""
    control_tokens: tuple[str, ...] | None = None
    """What the model's tokenizer or template reads as markup wherever it occurs; it is escaped in text from elsewhere.
    `{n}` is any number, `{word}` letters, digits and `_:/.-`. None: not known, so those of all families."""

    # How to read the reply
    accept: tuple[str, ...] | None = None
    """Dialects whose calls are recognized in text, beside the one that prompt mode requests; None: all of them."""
    in_reasoning: bool = False
    """Whether the template opens the reasoning block itself, on a server that leaves reasoning in the content."""
    stream_usage: bool = True
    """Whether the server takes `stream_options.include_usage`."""
    swallows: bool = True
    """Whether an empty answer that cost tokens counts as a reply that the server lost, and is requested again."""
    cuts_streams: bool = False
    """Whether the server cuts a streamed reply at tags of calls that are only quoted in it: arguments inside a string,
    and text for good. The arguments of its calls are then passed on only once they are one whole JSON value."""


# Which hosts are OpenAI's own, or serve its models for Azure: their API does more than Chat Completions can express.
#
# What they enforce, such as the format of an answer, can be relied on, so there is nothing to heal.


_ENDS = ("api.openai.com", ".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")


def is_openai_host(host: str) -> bool:
    """Whether a host is one of OpenAI's or Azure's."""
    return host.endswith(_ENDS)


def is_openai_url(url: str) -> bool:
    """Whether a URL leads to OpenAI or Azure; false if it cannot be read."""
    try:
        return is_openai_host((urlsplit(url).hostname or "").lower())
    except ValueError:
        return False
