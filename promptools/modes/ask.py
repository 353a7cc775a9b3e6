"""Everything known about one request before it goes anywhere: what the client wants, checked once, in our words."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from promptools.errors import UsageError, clip
from promptools.modes.options import Options
from promptools.profiles import Profile
from promptools.schema import Tools
from promptools.wire.shapes import as_int, as_list, as_object, as_text, is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from promptools.harmony.vocabulary import Vocabulary

ChoiceKind = Literal["auto", "none", "required", "named"]

MOST_CHOICES = 128
"""How many choices one request may ask for, as in OpenAI's own API."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The request's `tool_choice`: `named` has the tool's `name`, the others have none."""

    kind: ChoiceKind = "auto"
    name: str | None = None

    @property
    def forced(self) -> bool:
        """Tell whether the reply must hold a call."""
        return self.kind in {"required", "named"}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, read and checked. Nothing in it is ever changed in place, `body` included."""

    body: dict[str, Any]
    """The client's body, without the `promptools` key; `model` is the server's name for it."""
    tools: Tools
    """The function tools of the request; empty when there are none."""
    offered: Tools
    """Those that may be called under its `tool_choice`: all, some (`allowed_tools`), the named one, or none."""
    others: tuple[Any, ...] = ()
    """Offered tools of other types (`custom`, ...), and what is no tool: native mode passes them on, no other can."""
    notes: tuple[str, ...] = ()
    """What of the tools was not as it should be, and how it was read."""
    choice: Choice = field(default_factory=Choice)
    parallel: bool = True
    """May the reply hold more than one call?"""
    stream: bool = False
    include_usage: bool = False
    """Does the client of a stream want the usage chunk?"""
    n: int = 1
    profile: Profile = field(default_factory=Profile)
    options: Options = field(default_factory=Options)
    json_answer: bool = False
    """Was a JSON answer asked for (`response_format`)? Then bare JSON is the answer, not a call."""
    legacy: bool = False
    """Did the client speak `functions` and `function_call`? Then the answer does too."""
    system_prompt: str = ""
    """The config's own system prompt, placed by `profile.prompt_placement`."""
    num_ctx: int | None = None
    """Context to ask Ollama for, in tokens, where the profile leaves it to us; None: the server's own."""
    room: int | None = None
    """Tokens that the server has said are left for the answer; None: it did not."""
    today: str | None = None
    """The date, for modes that tell it; None: not known, or not to be told."""
    vocabulary: Callable[[], Vocabulary | None] | None = None
    """Gives the model's own vocabulary, where there is one at hand."""
    feedback: tuple[dict[str, Any], ...] = ()
    """Messages that corrections added, in the client's shape; modes put them after the request's own."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Give the request's messages and the corrections after them."""
        return [*(each for each in as_list(self.body.get("messages")) if is_object(each)), *self.feedback]

    @property
    def model(self) -> str:
        """Give the model's name as the server knows it."""
        return as_text(self.body.get("model"))

    @property
    def accept(self) -> tuple[str, ...] | None:
        """Return the dialects in which a call in text is one; None: all."""
        return self.options.accept if self.options.accept is not None else self.profile.accept

    @property
    def checks_form(self) -> bool:
        """Whether an answer is checked here against `response_format`, since beside tools no server is asked to."""
        if not self.json_answer or self.profile.format_beside_tools or self.choice.kind == "none":
            return False
        return bool(len(self.offered) or self.others)

    @property
    def max_tokens(self) -> int | None:
        """Give the most tokens that the answer may have; None where the request sets no limit."""
        own = as_int(as_object(self.body.get("options")).get("num_predict"))  # Ollama's, which wins there
        limits = (as_int(self.body.get(key)) for key in ("max_completion_tokens", "max_tokens"))
        return next((each for each in (own, *limits) if each), None)

    @property
    def sends(self) -> int:
        """Give how many requests `n` costs: one where the server heeds it, else n."""
        return 1 if self.profile.n else self.n

    def on(self, day: str | None) -> Ask:
        """Copy for a day: the one that the options name, else this one; an empty one is none."""
        return replace(self, today=(day if self.options.date is None else self.options.date) or None)

    def corrected(self, feedback: tuple[dict[str, Any], ...]) -> Ask:
        """Copy with `feedback` added: the same request, asked again."""
        return replace(self, feedback=(*self.feedback, *feedback))


def concerns_tools(body: Any) -> bool:
    """Tell whether a request has to do with tools at all: offered ones, or calls and results in its history."""
    data = as_object(body)
    if data.get("tools") or data.get("functions"):
        return True
    return any(
        message.get("role") in ("tool", "function") or message.get("tool_calls") or message.get("function_call")
        for message in map(as_object, as_list(data.get("messages")))
    )


def read_ask(
    body: Mapping[str, Any],
    profile: Profile,
    options: Options | None = None,
    *,
    model: str | None = None,
    marks: Mapping[str, Mapping[str, Any]] | None = None,
    system_prompt: str = "",
) -> Ask:
    """Read a chat completions body. `model` replaces the body's; `marks` are the config's, by tool name.

    No tool is refused, however odd: see `Ask.notes`. Raises `UsageError` for tools that are no list, a `tool_choice`
    that cannot be met, messages that are none, more than `MOST_CHOICES` choices, and unknown or wrong options.
    """
    own = {key: value for key, value in body.items() if key != "promptools"}
    if model is not None:
        own["model"] = model
    offered, others, odd = _offered(own)
    tools = _prepared(offered, marks)
    choice, allowed = _choice(own)
    _check_choice(choice, tools, others)
    _check_messages(own.get("messages"))
    n = as_int(own.get("n"))
    if n and n > MOST_CHOICES:
        raise UsageError(f"'n' is {n}; ask for at most {MOST_CHOICES} choices at once")
    return Ask(
        body=own,
        tools=tools,
        offered=tools
        if allowed is None
        else _prepared([each for each in offered if _function_name(each) in allowed], marks),
        others=others,
        notes=(*odd, *tools.notes),
        choice=choice,
        parallel=own.get("parallel_tool_calls") is not False and (bool(own.get("tools")) or not own.get("functions")),
        stream=own.get("stream") is True,
        include_usage=as_object(own.get("stream_options")).get("include_usage") is True,
        n=n if n and n > 1 else 1,
        profile=profile,
        options=(options or Options()).override(body.get("promptools")),
        json_answer=as_object(own.get("response_format")).get("type") in {"json_object", "json_schema"},
        legacy=bool(own.get("functions") and not own.get("tools")),
        system_prompt=system_prompt,
    )


def _prepared(tools: list[dict[str, Any]], marks: Mapping[str, Mapping[str, Any]] | None) -> Tools:
    prepared = Tools.prepare(tools)
    assert prepared is not None
    return prepared.with_marks(marks) if marks else prepared


def _offered(body: Mapping[str, Any]) -> tuple[list[dict[str, Any]], tuple[Any, ...], list[str]]:
    """Return the function tools, what else is offered, and what is to be said of that.

    A server takes tools that are none, or share a name; so they go on to it. Of several with one name the last is the
    one that calls are checked by: an app's table of its functions holds that one too.
    """
    key = "tools" if body.get("tools") else "functions"
    both = bool(body.get("tools") and body.get("functions"))
    notes = ["'functions' was left out: it is the old form of 'tools'"] if both else []
    given = body.get(key)
    if not given:
        return [], (), notes
    if not is_list(given):
        raise UsageError(f"{key!r} must be a list of objects, not {clip(repr(given))}")
    ours: dict[str, dict[str, Any]] = {}
    others: list[Any] = []
    for position, tool in enumerate(given):
        name = _function_name(tool)
        if name is None:
            others.append(tool)
            if not is_object(tool) or tool.get("type", "function") == "function" or "function" in tool:
                notes.append(f"{key}[{position}] is no function with a name: no call of it is known")
            continue
        if name in ours:
            notes.append(f"the tool {name!r} is offered more than once: its calls are checked by the last of them")
            others.append(ours.pop(name))
        ours[name] = tool
    return [*ours.values()], tuple(others), notes


def _function_name(tool: Any) -> str | None:
    """Return the name of a function tool; None for a tool of another type, and for what is none."""
    if not is_object(tool) or (tool.get("type", "function") != "function" and "function" not in tool):
        return None
    function = tool if tool.get("function") is None else tool["function"]
    name = function.get("name") if is_object(function) else None
    return name if isinstance(name, str) and name.strip() else None


def _choice(body: Mapping[str, Any]) -> tuple[Choice, frozenset[str] | None]:
    """Read `tool_choice`, or `function_call` of the old form, and the names that may be called (None: all)."""
    said = body.get("tool_choice")
    if said is None:
        said = body.get("function_call")
    if said is None or said == "auto":
        return Choice(), None
    if said == "none":
        return Choice("none"), frozenset()
    if said in ("required", "any"):  # "any" is Mistral's word
        return Choice("required"), None
    data = as_object(said)
    if data.get("type") == "allowed_tools":
        inner = as_object(data.get("allowed_tools")) or data
        kind: ChoiceKind = "required" if inner.get("mode") == "required" else "auto"
        return Choice(kind), frozenset(_tool_name(tool) for tool in as_list(inner.get("tools")))
    name = _tool_name(data)
    if not name:
        raise UsageError(
            f"tool_choice {said!r} is not understood; use 'auto', 'none', 'required' or "
            "{'type': 'function', 'function': {'name': ...}}"
        )
    return Choice("named", name), frozenset((name,))


def _tool_name(data: Any) -> str:
    named = as_object(data)
    return as_text(as_object(named.get("function")).get("name")) or as_text(named.get("name"))


def _check_choice(choice: Choice, tools: Tools, others: tuple[Any, ...]) -> None:
    if choice.kind == "named" and tools.get(choice.name or "") is None:
        offered = ", ".join(map(repr, tools.names)) or "none"
        raise UsageError(f"tool_choice names {choice.name!r}, which is not among the offered tools ({offered})")
    if choice.kind == "required" and not tools and not others:
        raise UsageError("tool_choice is 'required' but no tool is offered; send 'tools', or leave 'tool_choice' out")


def _check_messages(messages: Any) -> None:
    if not is_list(messages):
        raise UsageError(f"'messages' must be a list of objects, not {clip(repr(messages))}")
    for place, message in enumerate(messages):
        if not is_object(message):
            raise UsageError(f"messages[{place}] must be an object with a 'role', not {clip(repr(message))}")
