"""Calls that a conversation holds over and over: the same tool, the same arguments, the same result.

Models that do not see that a result answers the question make the call again, and again (pi#6158, opencode#28596,
openclaw#120415). The model is told so in a line behind the last result. Nothing is withheld, and no call is refused:
to ask again is legitimate, and a result that changes is no repetition.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from promptools.errors import UsageError
from promptools.json_values import is_array
from promptools.modes.requests.history import Turn, parse_history
from promptools.wire.json_types import as_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.types import ModeName

RepeatAction = Literal["hint", "answer", "none"]
"""What was done about a repeated call; `none`: it is noted alone, since the server's template writes the prompt."""
PROMPTING_MODES: frozenset[ModeName] = frozenset({"prompt", "harmony"})
"""The modes whose prompt we write, where the hint is the default."""
_RESULT_ROLES = frozenset(("tool", "function"))


class RepeatedCall(NamedTuple):
    """A call whose result the conversation ends with, and how often the conversation holds the two."""

    name: str
    times: int

    def note(self, action: RepeatAction) -> str:
        """Return the note for the trace."""
        done = {"hint": "the model is told so", "answer": "it is asked to answer, by tool_choice none", "none": ""}
        told = f"{self.name!r} was called {self.times} times with the same arguments and the same result"
        return f"{told}: {done[action]}" if done[action] else told

    def hint(self, name: str) -> str:
        """Return the line behind the last result; `name` is what the tool is called there."""
        return (
            f"(Note: {name} was called {self.times} times with these arguments, each time with this result. It is"
            " above.)"
        )


class _Answered(NamedTuple):
    """A call and its result, in a form that is compared."""

    name: str
    arguments: str
    result: str


def find_repeated(messages: Sequence[Mapping[str, Any]], least: int) -> RepeatedCall | None:
    """Return a call of the last turn with calls whose result is in the conversation `least` times or more.

    Of several the one that was made most often; None if there is none, or if the model has answered since. O(n) in the
    size of the conversation.
    """
    starts = [position for position, message in enumerate(messages) if message.get("role") == "assistant"]
    if least < 1 or not starts:
        return None
    try:
        latest = Counter(_answered_calls(messages[starts[-1] :]))
        results = _results(messages[starts[-1] :])
        for start, end in pairwise(starts if latest else ()):
            turn = messages[start:end]
            if not results.isdisjoint(_results(turn)):  # most are told apart by that, and need not be read
                latest.update(answered for answered in _answered_calls(turn) if answered in latest)
    except (UsageError, RecursionError):  # arguments that are nested too deeply to be compared
        return None
    return next((RepeatedCall(made.name, times) for made, times in latest.most_common(1) if times >= least), None)


def hint_turns(
    request: ToolRequest, mode: ModeName, turns: list[Turn], sent: Mapping[str, str]
) -> tuple[list[Turn], tuple[str, ...]]:
    """Return the turns of a conversation as a mode sends it, with the hint where it gives one, and the note of it.

    `sent` maps the names of tools to those that they are sent under.
    """
    line, notes = _hint(request, mode, sent)
    last = _last([turn.result is not None for turn in turns])
    if line and last is not None:
        turn = turns[last]
        assert turn.result is not None
        result = replace(turn.result, content=_with_line(turn.result.content, line))
        turns = [*turns[:last], replace(turn, message=_hinted(turn.message, line), result=result), *turns[last + 1 :]]
    return turns, notes


def hint_messages(
    request: ToolRequest, mode: ModeName, messages: list[dict[str, Any]], sent: Mapping[str, str]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the same of a conversation in the client's format."""
    line, notes = _hint(request, mode, sent)
    last = _last([message.get("role") in _RESULT_ROLES for message in messages])
    if line and last is not None:
        messages = [*messages[:last], _hinted(messages[last], line), *messages[last + 1 :]]
    return messages, notes


def _hint(request: ToolRequest, mode: ModeName, sent: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    action, repeated = request.repeat_action(mode), request.repeated
    if action is None or repeated is None:
        return "", ()
    return repeated.hint(sent.get(repeated.name, repeated.name)) if action == "hint" else "", (repeated.note(action),)


def _last(found: Sequence[bool]) -> int | None:
    return next((position for position in reversed(range(len(found))) if found[position]), None)


def _hinted(message: Mapping[str, Any], line: str) -> dict[str, Any]:
    """Return a result's message with a line behind its content."""
    content = message.get("content")
    if is_array(content):
        return {**message, "content": [*content, {"type": "text", "text": line}]}
    return {**message, "content": _with_line(as_text(content), line)}


def _with_line(text: str, line: str) -> str:
    return f"{text}\n\n{line}" if text.strip() else line


def _results(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the contents of a turn's results as they came; all that are not text count as one."""
    contents = [message.get("content") for message in messages if message.get("role") in _RESULT_ROLES]
    return {content.strip() if isinstance(content, str) else "" for content in contents}


def _answered_calls(messages: Sequence[Mapping[str, Any]]) -> list[_Answered]:
    """Return the calls of the first message, with their results in the others."""
    turns, _ = parse_history(messages)
    calls = {call.id: call for call in turns[0].calls}
    answered: list[_Answered] = []
    for turn in turns[1:]:
        call = calls.get(turn.result.call_id) if turn.result is not None else None
        if call is not None and turn.result is not None:
            others = json.dumps(turn.attachments) if turn.attachments else ""
            arguments = json.dumps(call.arguments, sort_keys=True)
            answered.append(_Answered(call.name, arguments, turn.result.content.strip() + others))
    return answered
