"""Parse and validate a Chat Completions request: its tools, tool choice, messages and options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic_core import to_json

from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.modes.history import PROMPTING_MODES, find_repeated
from promptools.modes.options import Options
from promptools.numbers import as_int
from promptools.profiles import Profile
from promptools.schema import Tools
from promptools.schema.recent_cache import RecentCache
from promptools.schema.tools import CACHED_CHARACTERS, CACHED_LISTS
from promptools.wire.json_body import as_list, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from promptools.harmony.bpe_vocabulary import TokenCodec
    from promptools.modes.history import RepeatAction, RepeatedCall
    from promptools.profiles.profile import OnRepeat
    from promptools.types import ModeName, Schema


ToolChoiceKind = Literal["auto", "none", "required", "named"]

_CHOICES = frozenset({"auto", "none", "required", "any"})

MAX_CHOICES = 128
"""Maximum number of choices that one request may ask for, as in OpenAI's own API."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The request's `tool_choice`; `name` is only set for `named`."""

    kind: ToolChoiceKind = "auto"
    name: str | None = None

    @property
    def forced(self) -> bool:
        """Whether the reply must contain a call."""
        return self.kind in {"required", "named"}


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A request, parsed and validated. Nothing in it is changed in place, including `body`."""

    body: dict[str, Any]
    """The client's body without the `promptools` key; its `model` is the server's name for the model."""
    tools: Tools
    """The function tools of the request."""
    offered: Tools
    """The tools that `tool_choice` allows: all, some (`allowed_tools`), the named one, or none."""
    other_tools: tuple[Any, ...] = ()
    """Tools of other types (such as `custom`), invalid tools and duplicates; only native mode can pass them on."""
    notes: tuple[str, ...] = ()
    """Notes for the trace on irregular tools and on an ignored `tool_choice`."""
    choice: ToolChoice = field(default_factory=ToolChoice)
    parallel_calls: bool = True
    """Whether the reply may hold more than one call."""
    stream: bool = False
    include_usage: bool = False
    """Whether the client asked for a chunk with the token usage at the end of a stream."""
    n: int = 1
    profile: Profile = field(default_factory=Profile)
    options: Options = field(default_factory=Options)
    json_answer: bool = False
    """Whether `response_format` asks for JSON. If so, JSON without markers is the answer, and not a call."""
    answer_schema: Schema | None = None
    """The JSON Schema of `response_format`; None if any JSON object is valid."""
    legacy: bool = False
    """Whether the client used `functions` instead of `tools`. If so, a call in the reply is sent as `function_call`."""
    system_prompt: str = ""
    """The config's system prompt, placed by `profile.system_prompt_placement`."""
    num_ctx: int | None = None
    """The context size to request from Ollama, in tokens, if the profile sets none; None means the server's default."""
    tokens_left: int | None = None
    """Number of tokens left for the answer, as reported by the server; None if the server has not reported it."""
    clock: Callable[[], datetime] | None = None
    """Returns the time, for modes that put the date into the prompt; None to leave the date out."""
    vocabulary: Callable[[], TokenCodec | None] | None = None
    """Returns the model's vocabulary, if it is installed."""
    repeated: RepeatedCall | None = None
    """The call that the history repeats; None if there is none, or if the options turn this check off."""
    feedback: tuple[dict[str, Any], ...] = ()
    """Messages after the request's own, in the client's format: rejected replies, and what to correct in them."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The request's messages, followed by `feedback`."""
        return [*(message for message in as_list(self.body.get("messages")) if is_object(message)), *self.feedback]

    @property
    def corrections(self) -> tuple[str, ...]:
        """The texts of `feedback` that tell the model what is wrong with its last reply."""
        texts = (as_text(message.get("content")) for message in self.feedback if message.get("role") != "assistant")
        return tuple(text.strip() for text in texts if text.strip())

    @property
    def model(self) -> str:
        """The server's name for the model."""
        return as_text(self.body.get("model"))

    @property
    def takes_calls(self) -> bool:
        """Whether the app accepts calls: it offers tools, of any type, or asks for calls to undeclared tools."""
        return bool(len(self.tools) or self.other_tools or self.options.takes_undeclared)

    @property
    def accepted_dialects(self) -> tuple[str, ...] | None:
        """The dialects in which calls in text are recognized; None means all dialects."""
        return self.options.accept if self.options.accept is not None else self.profile.accept

    @property
    def checks_response_format(self) -> bool:
        """Whether promptools itself checks the answer against `response_format`.

        This is done if tools are sent as well and the server does not accept `response_format` together with tools.
        """
        if not self.json_answer or self.profile.format_beside_tools or self.choice.kind == "none":
            return False
        return bool(len(self.offered) or self.other_tools)

    @property
    def heals_answer(self) -> bool:
        """Whether promptools repairs an answer that does not match `response_format`.

        No answer is repaired if log probabilities are requested, because these belong to the original tokens.
        """
        if not (self.json_answer and self.options.heal_format):
            return False
        return not (self.body.get("logprobs") or self.body.get("top_logprobs"))

    @property
    def streams_answer(self) -> bool:
        """Whether an answer that promptools repairs is sent to the client while the answer arrives.

        This is possible only if the reply cannot turn out to be a call.
        """
        return self.heals_answer and not (self.checks_response_format or self.choice.forced)

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens of the answer; None if the request sets no limit."""
        own = as_int(as_object(self.body.get("options")).get("num_predict"))  # takes precedence, as in Ollama
        limits = (as_int(self.body.get(key)) for key in ("max_completion_tokens", "max_tokens"))
        return next((limit for limit in (own, *limits) if limit), None)

    @property
    def on_repeat(self) -> OnRepeat | None:
        """What is done about a repeated call, according to the options or the profile; None if the mode decides."""
        return self.options.on_repeat or self.profile.on_repeat

    def repeat_action(self, mode: ModeName) -> RepeatAction | None:
        """Return what a mode does about a repeated call; None if no call is repeated."""
        if self.repeated is None:
            return None
        match self.on_repeat:
            case "answer":
                return "none" if self.choice.forced else "answer"
            case "hint":
                return "hint"
            case _:
                return "hint" if mode in PROMPTING_MODES else "none"

    @property
    def request_count(self) -> int:
        """How many requests the `n` choices take: one if the server supports `n`, else one for each choice."""
        return 1 if self.profile.n else self.n

    @property
    def today(self) -> str | None:
        """The date from the options or the clock; None if the prompt is to have no date."""
        if self.options.date is not None:
            return self.options.date or None
        return None if self.clock is None else self.clock().date().isoformat()

    def with_feedback(self, feedback: tuple[dict[str, Any], ...]) -> ToolRequest:
        """Return a copy of the request that asks the model again, with `feedback` added to the messages."""
        return replace(self, feedback=(*self.feedback, *feedback))


def involves_tools(body: Any) -> bool:
    """Return whether a request involves tools: it offers some, or has calls or results in its history."""
    data = as_object(body)
    if data.get("tools") or data.get("functions"):
        return True
    return any(
        message.get("role") in ("tool", "function") or message.get("tool_calls") or message.get("function_call")
        for message in map(as_object, as_list(data.get("messages")))
    )


def parse_request(
    body: Mapping[str, Any],
    profile: Profile,
    options: Options | None = None,
    *,
    model: str | None = None,
    marks: Mapping[str, Mapping[str, Any]] | None = None,
    system_prompt: str = "",
    vocabulary: Callable[[], TokenCodec | None] | None = None,
    clock: Callable[[], datetime] | None = None,
) -> ToolRequest:
    """Parse and check a Chat Completions body.

    `model` replaces the body's model. `marks` maps tool names to the config's marks, such as `dangerous`. No tool is
    refused, however irregular; the irregularities are listed in the result's `notes`. If `tool_choice` cannot be
    satisfied, it is left out when the server would ignore it anyway; for any other server, UsageError is raised.
    UsageError is also raised for tools that are not a list, invalid messages, more than `MAX_CHOICES` choices, and
    unknown or invalid options.
    """
    own = {key: value for key, value in body.items() if key != "promptools"}
    own |= {} if model is None else {"model": model}
    given = _read_tools(own)
    tools = _with_marks(given.tools, marks)
    choice, allowed, choice_notes = _read_tool_choice(own, tools, given.others, profile)
    _validate_messages(own.get("messages"))
    legacy = bool(own.get("functions") and not own.get("tools"))
    options = (options or Options()).override(body.get("promptools"))
    own = {**_agent_defaults(own, profile), **own} if options.agent else own
    on_repeat = options.on_repeat or profile.on_repeat
    repeated = None
    if on_repeat != "off" and choice.kind != "none" and (tools or given.others):
        repeated = find_repeated(as_list(own["messages"]), options.repeats)
    if repeated is not None and on_repeat == "answer" and not choice.forced:
        choice, allowed = ToolChoice("none"), frozenset[str]()
    form = as_object(own.get("response_format"))
    return ToolRequest(
        body=own,
        tools=tools,
        offered=tools if allowed is None else _with_marks(_prepare_tools(_named(given.functions, allowed)), marks),
        other_tools=given.others,
        notes=(*given.notes, *tools.notes, *choice_notes),
        choice=choice,
        parallel_calls=not legacy and own.get("parallel_tool_calls") is not False,
        stream=own.get("stream") is True,
        include_usage=as_object(own.get("stream_options")).get("include_usage") is True,
        n=_parse_n(own),
        profile=profile,
        options=options,
        json_answer=form.get("type") in {"json_object", "json_schema"},
        answer_schema=as_object(as_object(form.get("json_schema")).get("schema")) or None,
        legacy=legacy,
        repeated=repeated,
        system_prompt=system_prompt,
        vocabulary=vocabulary,
        clock=clock,
    )


def _agent_defaults(body: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """Return the parameters to add to an agent's request, except those that the request itself sets."""
    made: dict[str, Any] = {}
    if profile.agent_temperature is not None and "temperature" not in as_object(body.get("options")):
        made["temperature"] = profile.agent_temperature
    if profile.agent_effort is not None and not body.keys() & {"reasoning", "think", "chat_template_kwargs"}:
        made["reasoning_effort"] = profile.agent_effort
    return made


def _parse_n(body: Mapping[str, Any]) -> int:
    n = as_int(body.get("n")) or 1
    if n > MAX_CHOICES:
        raise UsageError(f"'n' is {n}; ask for at most {MAX_CHOICES} choices at once")
    return max(1, n)


def _prepare_tools(tools: list[dict[str, Any]]) -> Tools:
    prepared = Tools.prepare(tools)
    assert prepared is not None
    return prepared


def _with_marks(tools: Tools, marks: Mapping[str, Mapping[str, Any]] | None) -> Tools:
    return tools.with_marks(marks) if marks else tools


class _GivenTools(NamedTuple):
    """Holds the tools in a request body: the function tools, as given and in prepared form, and all other tools."""

    functions: list[dict[str, Any]]
    tools: Tools
    """The function tools in prepared form, without the config's marks."""
    others: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()


_NO_TOOLS = _GivenTools([], Tools([]))
_CACHE = RecentCache[_GivenTools](CACHED_LISTS, CACHED_CHARACTERS)
"""Caches prepared tools by the JSON of their list, because an app offers the same tools in each request."""


def _read_tools(body: Mapping[str, Any]) -> _GivenTools:
    """Return the tools that are offered under `tools`, or under the older name `functions`."""
    key = "tools" if body.get("tools") else "functions"
    given = body.get(key)
    if not given:
        return _NO_TOOLS
    if not is_array(given):
        raise UsageError(f"{key!r} must be a list of objects, not {clip(repr(given))}")
    try:
        text = key + to_json(given).decode()
    except ValueError:  # lone surrogates
        text = ""
    read = _CACHE.get(text) if text else None
    if read is None:
        read = _sort_tools(key, given)
        if text:
            _CACHE.put(text, read)
    if key == "tools" and body.get("functions"):
        return read._replace(notes=("'functions' was left out: it is the old form of 'tools'", *read.notes))
    return read


def _sort_tools(key: str, given: list[Any]) -> _GivenTools:
    """Separate function tools from tools of other types, and note irregularities.

    Servers accept invalid tools and duplicate names, so these are passed on. If several tools have the same name, calls
    are checked against the last one, which is also the one that an app's table of functions keeps.
    """
    notes: list[str] = []
    functions: dict[str, dict[str, Any]] = {}
    others: list[Any] = []
    for position, tool in enumerate(given):
        name = _function_name(tool)
        if name is None:
            others.append(tool)
            if not is_object(tool) or tool.get("type", "function") == "function" or "function" in tool:
                notes.append(f"{key}[{position}] is not a function with a name, so its calls cannot be recognized")
            continue
        if name in functions:
            notes.append(f"the tool {name!r} is offered more than once: its calls are checked by the last of them")
            others.append(functions.pop(name))
        functions[name] = tool
    return _GivenTools([*functions.values()], _prepare_tools([*functions.values()]), tuple(others), tuple(notes))


def _named(functions: list[dict[str, Any]], names: frozenset[str]) -> list[dict[str, Any]]:
    return [tool for tool in functions if _function_name(tool) in names]


def _function_name(tool: Any) -> str | None:
    """Return the name of a function tool; None for anything that is not a function tool with a name."""
    if not is_object(tool) or (tool.get("type", "function") != "function" and "function" not in tool):
        return None
    function = tool if tool.get("function") is None else tool["function"]
    name = function.get("name") if is_object(function) else None
    return name if isinstance(name, str) and name.strip() else None


def _read_tool_choice(
    body: Mapping[str, Any], tools: Tools, other_tools: tuple[Any, ...], profile: Profile
) -> tuple[ToolChoice, frozenset[str] | None, tuple[str, ...]]:
    """Return the choice, the names that may be called (None: all), and notes.

    Raises `UsageError` for a choice that cannot be satisfied, unless the server would accept and ignore it.
    """
    given = _given_choice(body)
    try:
        choice, allowed = _with_own_names(tools, *_parse_tool_choice(given))
        _validate_tool_choice(choice, tools, other_tools)
    except UsageError as error:
        honored = profile.tool_choice & ({"required", "named"} if is_object(given) else {"none", "required", "named"})
        if honored:
            raise
        return ToolChoice(), None, (f"left out, as the server would ignore it: {error}",)
    return choice, allowed, ()


def _given_choice(body: Mapping[str, Any]) -> Any:
    """Return `tool_choice`, or the older `function_call`."""
    return body.get("function_call") if body.get("tool_choice") is None else body["tool_choice"]


def _parse_tool_choice(tool_choice: Any) -> tuple[ToolChoice, frozenset[str] | None]:
    """Parse a choice; also return the names that may be called (None: all)."""
    kind_alone = as_text(as_object(tool_choice).get("type"))
    if kind_alone in _CHOICES:  # Anthropic's form
        tool_choice = kind_alone
    if not tool_choice or tool_choice == "auto":
        return ToolChoice(), None
    if tool_choice == "none":
        return ToolChoice("none"), frozenset()
    if tool_choice in ("required", "any"):  # "any" is Mistral's name for it
        return ToolChoice("required"), None
    data = as_object(tool_choice)
    if data.get("type") == "allowed_tools":
        inner = as_object(data.get("allowed_tools")) or data
        kind: ToolChoiceKind = "required" if inner.get("mode") == "required" else "auto"
        return ToolChoice(kind), frozenset(_named_tool(tool) for tool in as_list(inner.get("tools")))
    name = _named_tool(data)
    if not name:
        raise UsageError(
            f"tool_choice {clip(repr(tool_choice))} is not understood; use 'auto', 'none', 'required' or "
            "{'type': 'function', 'function': {'name': ...}}"
        )
    return ToolChoice("named", name), frozenset((name,))


def _with_own_names(
    tools: Tools, choice: ToolChoice, allowed: frozenset[str] | None
) -> tuple[ToolChoice, frozenset[str] | None]:
    """Replace each alternative tool name, in the choice and in the allowed names, with the tool's own name."""
    own = {name: tool.name for name in allowed or () if (tool := tools.get(name)) is not None}
    if not any(name != own_name for name, own_name in own.items()):
        return choice, allowed
    choice = replace(choice, name=own.get(choice.name or "", choice.name))
    return choice, frozenset(own.get(name, name) for name in allowed or ())


def _named_tool(data: Any) -> str:
    named = as_object(data)
    return as_text(as_object(named.get("function")).get("name")) or as_text(named.get("name"))


def _validate_tool_choice(choice: ToolChoice, tools: Tools, other_tools: tuple[Any, ...]) -> None:
    if choice.kind == "named" and tools.get(choice.name or "") is None:
        offered = ", ".join(map(repr, tools.names)) or "none"
        raise UsageError(f"tool_choice names {choice.name!r}, which is not among the offered tools ({offered})")
    if choice.kind == "required" and not tools and not other_tools:
        raise UsageError("tool_choice is 'required' but no tool is offered; send 'tools', or leave 'tool_choice' out")


def _validate_messages(messages: Any) -> None:
    if not is_array(messages):
        raise UsageError(f"'messages' must be a list of objects, not {clip(repr(messages))}")
    for position, message in enumerate(messages):
        if not is_object(message):
            raise UsageError(f"messages[{position}] must be an object with a 'role', not {clip(repr(message))}")
