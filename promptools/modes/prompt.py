"""Prompt mode: tools, calls and results are text in a dialect; the server sees no `tools`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from promptools import dialects
from promptools.dialects.example import example_calls
from promptools.modes.ask import read_ask
from promptools.modes.constrain import constrain, constraint
from promptools.modes.foreign import foreign_to
from promptools.modes.form import answer_in_words
from promptools.modes.history import Turn, read_history
from promptools.modes.messages import Message, place_system, plain, settle, take_system
from promptools.modes.mode import Upstream
from promptools.modes.names import in_harmony, renamed
from promptools.modes.reader import HARMONY, ReplyReader
from promptools.modes.request import not_offered, passed_on
from promptools.profiles import Profile
from promptools.schema import Tools
from promptools.wire.content import split_parts
from promptools.wire.shapes import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptools.dialects.base import Dialect
    from promptools.modes.ask import Ask
    from promptools.schema import ToolLike
    from promptools.types import Call, ModeName, NewId, Result

PLAIN = "json"
"""The dialect whose calls are plain JSON: the one that constrained decoding can force."""


class Prompt:
    """Describe the tools in the system message, and read the calls from the text of the reply."""

    name: Final[ModeName] = "prompt"

    def body(self, ask: Ask) -> Upstream:
        """Encode the request. Raises UsageError for an unknown dialect."""
        key = constraint(ask)
        dialect = dialects.get(PLAIN if key else ask.options.dialect or ask.profile.dialect)
        body = passed_on(ask)
        notes = not_offered(ask, self.name)
        block = ""
        examples: tuple[Call, ...] = ()
        foreign = foreign_to(ask, dialect=dialect.name)
        turns, mended = read_history(ask.messages)
        renames = foreign.names([*ask.tools.names, *(call.name for turn in turns for call in turn.calls)])
        sent = renames
        if len(ask.offered):
            offered = foreign.prepared(renamed(ask.offered, renames))
            block = dialect.render_tools(offered, parallel=ask.parallel, required=ask.choice.forced)
            examples = example_calls(offered)
            if ask.json_answer and not ask.choice.forced:
                block += f"\n\n{answer_in_words(ask)}"
                body.pop("response_format", None)
                notes.append("response_format was put into words: enforced, no call would be possible")
            _stop(body, dialect.stop)
            if dialect.name == HARMONY:  # the others write any name
                sent = {**in_harmony(ask.offered.names), **renames}
            notes += (f"the tool {name!r} was sent as {other!r}" for name, other in sent.items())
        if key:
            constrain(body, key, ask)
        body["messages"] = _messages(ask, foreign.turns(turns, len(ask.feedback)), dialect, block)
        names = {other: name for name, other in sent.items()}
        asked = dialect.name if len(ask.offered) else None
        return Upstream(
            body, (*notes, *mended, *foreign.notes), names, asked, restore=foreign.restore, examples=examples
        )

    def reader(self, ask: Ask, upstream: Upstream, new_id: NewId) -> ReplyReader:
        """Return a reader of calls in the requested dialect, and in any other that is accepted."""
        return ReplyReader(ask, upstream, new_id)


def render(
    messages: Iterable[Mapping[str, Any]],
    tools: Tools | Iterable[ToolLike] | None = None,
    *,
    dialect: str = PLAIN,
    tool_choice: Any = None,
    parallel_tool_calls: bool = True,
    escape: bool = True,
) -> list[Message]:
    """Render a conversation in a dialect: the messages that prompt mode sends to a server nothing is known about.

    They require only that the server accepts text. The tools are in the system message, past calls in the assistant's
    text, and consecutive results are one user message. `tool_choice` and `parallel_tool_calls` are those of a request.
    `escape` makes markup harmless in all but system messages. O(n) in the size of the conversation.

    Raises UsageError for a dialect that is unknown or can only be parsed, for invalid messages or tools, and for a
    `tool_choice` that cannot be satisfied.
    """
    body = {
        "messages": [*messages] if isinstance(messages, Iterable) else messages,
        "tools": (Tools.prepare(tools) or Tools([])).to_openai(),
        "tool_choice": tool_choice,
        "parallel_tool_calls": parallel_tool_calls,
        "promptools": {"dialect": dialects.get(dialect).name, "escape": escape},
    }
    rendered: list[Message] = Prompt().body(read_ask(body, Profile())).body["messages"]
    return rendered


def _messages(ask: Ask, turns: Sequence[Turn], dialect: Dialect, block: str) -> list[Message]:
    own, turns = take_system(_with_ids(turns, dialect))
    messages: list[Message] = []
    results: list[Turn] = []
    for turn in turns:
        if turn.result is not None:
            results.append(turn)
            continue
        messages += _result_turn(results, dialect, ask.profile)
        results = []
        messages.append(_with_calls(turn, dialect, ask.profile))
    messages += _result_turn(results, dialect, ask.profile)
    return settle(place_system(ask, own, block), messages, ask.profile)


def _with_ids(turns: Sequence[Turn], dialect: Dialect) -> list[Turn]:
    """Replace the ids of calls, and of their results, by the ids that the dialect writes."""
    ids: dict[str, str] = {}
    renumbered: list[Turn] = []
    number = count()
    for turn in turns:
        ids.update((call.id, dialect.call_id(call, next(number))) for call in turn.calls)
        calls = tuple(replace(call, id=ids[call.id]) for call in turn.calls)
        result = turn.result and replace(turn.result, call_id=ids.get(turn.result.call_id, turn.result.call_id))
        renumbered.append(replace(turn, calls=calls, result=result))
    return renumbered


def _with_calls(turn: Turn, dialect: Dialect, profile: Profile) -> Message:
    """Render the assistant's calls after its text, as the model would have: it imitates what it sees."""
    message = plain(turn, profile)
    if turn.calls:
        text, _ = split_parts(message.get("content"))
        calls = dialect.render_calls(turn.calls)
        message["content"] = f"{text}\n{calls}" if text else calls
    elif turn.role == "assistant" and message.get("content") is None:
        message["content"] = ""
    return message


def _result_turn(turns: Sequence[Turn], dialect: Dialect, profile: Profile) -> list[Message]:
    """Render consecutive results as one user message, with their images."""
    results: list[Result] = [turn.result for turn in turns if turn.result is not None]
    if not results:
        return []
    text = dialect.render_results(results)
    images = [part for turn in turns for part in turn.images]
    if not images or not profile.content_parts:
        return [{"role": "user", "content": text}]
    return [{"role": "user", "content": [{"type": "text", "text": text}, *images]}]


def _stop(body: dict[str, Any], stops: Sequence[str]) -> None:
    """Add the dialect's stop strings to the request's own: they stop the model before it invents a result."""
    given = body.get("stop")
    own = [given] if isinstance(given, str) else [stop for stop in as_list(given) if isinstance(stop, str)]
    more = [stop for stop in stops if stop not in own]
    if more:
        body["stop"] = [*own, *more]
