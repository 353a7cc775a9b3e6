"""What an endpoint and a model can do: one flat record of facts, each with a documented default."""

from dataclasses import dataclass
from typing import Literal

from promptools.types import ModeName

Wire = Literal["chat", "ollama"]
Raw = Literal["completions", "llamacpp", "generate"]
Api = Wire | Raw
"""Any API that is spoken upstream."""
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
NumCtx = Literal["fit", "server"] | int

GENERIC = "openai-compatible"
"""The kind of a server that nothing is known about."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Capability flags of one endpoint and model. A flag that nobody sets has the default written here."""

    kind: str = GENERIC
    """What server it is. Never guessed: a provider's `kind`, or its name when that is a kind."""
    family: str | None = None
    """The model's family, by its name; None when no family matches."""

    # How to reach it
    wire: Wire = "chat"
    """The API that is spoken upstream: OpenAI Chat Completions, or Ollama's own /api/chat."""
    raw: Raw | None = None
    """The raw endpoint, which goes on with a prompt as it is: /v1/completions, llama.cpp's /completion, or Ollama's
    /api/generate; None: there is none, and so no harmony mode."""
    raw_ids: bool = False
    """Does the raw endpoint know token ids: a prompt made of them, `stop_token_ids`, `skip_special_tokens`?"""
    context: int | None = None
    """Tokens that a prompt and its answer may have together; None: not known."""
    needs_key: bool = True
    """Is it an error when the variable that `api_key_env` names is not set? Local servers take requests without."""
    num_ctx: NumCtx = "fit"
    """Context to ask Ollama's /api/chat for, in tokens. `fit`: the server's own, and more when a request needs it;
    `server`: always the server's own."""
    num_ctx_limit: int = 131_072
    """The most that `fit` may ask for, in tokens: what the model was made for, or what memory there is."""

    # How to ask for tools
    modes: tuple[ModeName, ...] = ("native", "prompt")
    """Modes in the order to try them."""
    raw_last: bool = True
    """After a failure of kind `harmony`, is harmony mode tried last, though `modes` does not list it? `modes` of a
    config or an override sets it to false."""
    dialect: str = "json"
    """Dialect that prompt mode asks for."""
    prompt_placement: Placement = "prepend"
    """Where a configured system prompt goes: before the tools' block, after it, or in place of the request's own."""
    thinking: bool = True
    """Does the model take `reasoning_effort`, `think` and their kin? If not they are not sent."""
    tool_choice: frozenset[ToolChoice] = frozenset(("auto", "none", "required", "named"))
    """Values of `tool_choice` that the server takes and heeds; the others are never sent, but enforced by us."""
    parallel_tool_calls: bool = True
    """Does the server heed `parallel_tool_calls`? If not it is not sent, but enforced by us."""
    n: bool = True
    """Does the server heed `n`? If not, n choices cost n requests."""
    constrained: Constrained | None = None
    """The request key that forces the reply into a JSON Schema; None: there is none that can be relied on."""
    constrained_ok: bool = True
    """May constrained decoding be used with this model? Grammars garble Harmony on some engines."""
    format_beside_tools: bool = False
    """May a reply that `response_format` forces into a form still hold calls? If not, it is put into words instead, and
    an answer that does not fit is asked for again without tools."""
    relax_schema: bool = False
    """Does the server choke on legal JSON Schema? Then it is sent a relaxed copy; the original checks the reply."""
    tool_names: str = r"[a-zA-Z0-9_-]{1,64}"
    """Regular expression that a tool's name must match whole; others travel under a mapped name."""
    sampling: frozenset[Sampling] = frozenset()
    """Parameters of sampling that the server takes beside OpenAI's own; others of Ollama's `options` are left out."""
    template_kwargs: bool = False
    """Does the server hand `chat_template_kwargs` on to the model's template? Thinking is switched on and off there."""

    # How to write the conversation
    tool_ids: ToolIds = "any"
    """Form of call ids: `alnum9` is exactly nine of a-z, A-Z, 0-9."""
    alternate_roles: bool = False
    """Does the template demand strict user/assistant turns? Then neighbours of one role are merged."""
    system_role: bool = True
    """Does the template take a system message? If not its text is folded into the first user message."""
    history_arguments: HistoryArguments = "string"
    """Form of a past call's arguments: JSON text as in OpenAI's API, or an object."""
    null_content: bool = True
    """May an assistant message's content be null beside its calls? If not it is the empty string."""
    content_parts: bool = True
    """May content be a list of parts? If not, text parts are joined into one string."""
    result_parts: bool = True
    """May a tool message's content be a list of parts? If not, it is made one string."""
    reasoning_field: ReasoningField = "reasoning_content"
    """Key under which past reasoning is sent back. When reading, every known key is understood."""
    control_tokens: tuple[str, ...] | None = None
    """What the model's tokenizer or template reads as markup wherever it stands; it is escaped in foreign text. `{n}`
    is any number, `{word}` letters, digits and `_:/.-`. None: not known, so those of all families."""

    # How to read the reply
    accept: tuple[str, ...] | None = None
    """Dialects in which a call in text is one, beside the one that prompt mode asks for; None: all of them."""
    in_reasoning: bool = False
    """Does the template open the reasoning block itself, on a server that does not take reasoning out?"""
    stream_usage: bool = True
    """Does the server take `stream_options.include_usage`?"""
    swallows: bool = True
    """Is an empty answer that cost tokens taken for a reply that the server lost, and asked for again?"""
