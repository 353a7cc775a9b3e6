"""Prompt mode: tools, calls and results are written as text in a dialect, and no `tools` are sent to the server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from promptools import dialects
from promptools.errors import UsageError
from promptools.modes.failed_results import AnsweredStep, answered_steps
from promptools.modes.foreign_text import foreign_escaper
from promptools.modes.history import (
    Message,
    Turn,
    fit_template,
    hint_turns,
    join_system,
    parse_history,
    place_system,
    plain_message,
    split_system,
    without_repeats,
)
from promptools.modes.prepared_request import (
    PreparedRequest,
    apply_constraint,
    constraint_key,
    forwarded_body,
    other_tool_notes,
)
from promptools.modes.reply_reader import HARMONY
from promptools.modes.response_format import describe_answer_format
from promptools.modes.tool_names import harmony_names, rename_tools
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile
from promptools.schema import Tools
from promptools.wire.json_body import as_list, split_content

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from promptools.dialects.contract import Dialect
    from promptools.modes.tool_request import ToolRequest
    from promptools.schema import ToolLike
    from promptools.types import Call, Result

_declarations: WeakKeyDictionary[Tools, dict[tuple[str, dialects.Edition, bool, bool], str]] = WeakKeyDictionary()
JSON_DIALECT = "json"
"""The dialect whose calls are plain JSON, which constrained decoding can enforce."""


def prepare_prompt(request: ToolRequest) -> PreparedRequest:
    """Encode the request, with the tools in the system message.

    The system message has the app's own system text and the tools; `fit_template` moves this text if the model's
    template takes no system message. Past calls are in the assistant's text, and results are in messages of the user.
    If a call is required and the server can constrain its output (`constraint_key`), the dialect is `json`, whatever
    else is chosen. `preparation` in `exchange/attempt.py` calls this function through `PREPARE`.

    Raises UsageError for an unknown dialect.
    """
    key = constraint_key(request)
    dialect = dialects.get(JSON_DIALECT if key else request.options.dialect or request.profile.dialect)
    body = forwarded_body(request)
    notes = other_tool_notes(request, "prompt")
    block = ""
    examples: tuple[Call, ...] = ()
    foreign = foreign_escaper(request, dialect=dialect.name)
    turns, repairs = parse_history(request.messages)
    turns, placed = place_system(turns, request.profile)
    renames = foreign.rename_marked([*request.tools.names, *(call.name for turn in turns for call in turn.calls)])
    sent = renames
    if len(request.offered):
        offered = foreign.escape_prepared(rename_tools(request.offered, renames))
        block = _system_block(request, dialect, offered, body, notes)
        examples = dialect.example_calls(offered)
        _add_stops(body, dialect.stop)
        if dialect.name == HARMONY:  # other dialects can write any name
            sent = {**harmony_names(request.offered.names), **renames}
        notes += (f"the tool {name!r} was sent as {other!r}" for name, other in sent.items())
    if key:
        apply_constraint(body, key, request)
    line = _after_results(request, turns, sent)
    turns = foreign.escape_turns(turns, len(request.feedback))
    turns, repeats = hint_turns(request, "prompt", turns, sent)
    if request.repeat_action("prompt") == "answer":
        turns = without_repeats(turns)
        repeats += ("calls that were made again with the same result were sent once",)
    body["messages"] = _encode_messages(request, turns, dialect, block, line)
    names = {other: name for name, other in sent.items()}
    asked = dialect.name if len(request.offered) else None
    return PreparedRequest(
        body,
        (*notes, *repairs, *placed, *repeats, *foreign.notes),
        names,
        asked,
        restore=foreign.restore,
        repeat_action=request.repeat_action("prompt"),
        examples=examples,
    )


def _system_block(
    request: ToolRequest, dialect: Dialect, offered: Tools, body: dict[str, Any], notes: list[str]
) -> str:
    """Return the text for the system message that declares the tools.

    If `response_format` asks for JSON and no call is required, the text also describes this format, and the key is
    removed from `body`.
    """
    block = _declaration(dialect, offered, parallel=request.parallel_calls, required=request.choice.forced)
    if not request.json_answer or request.choice.forced:
        return block
    body.pop("response_format", None)
    notes.append("response_format was put into the prompt: enforced, no call would be possible")
    return f"{block}\n\n{describe_answer_format(request)}"


def render(
    messages: Iterable[Mapping[str, Any]],
    tools: Tools | Iterable[ToolLike] | None = None,
    *,
    dialect: str = JSON_DIALECT,
    tool_choice: Any = None,
    parallel_tool_calls: bool = True,
    escape: bool = True,
) -> list[Message]:
    """Render a conversation in a dialect: the messages that prompt mode sends to an unknown server.

    The messages can be sent to any server that accepts text. The tools are in the system message, past calls in the
    assistant's text, and consecutive results form one user message. `tool_choice` and `parallel_tool_calls` are as in a
    request. `escape` makes markup harmless, except in system messages. O(n) in the size of the conversation.

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
    rendered: list[Message] = prepare_prompt(parse_request(body, Profile())).body["messages"]
    return rendered


def _declaration(dialect: Dialect, tools: Tools, *, parallel: bool, required: bool) -> str:
    """Return the text that declares the tools in the prompt.

    The text is cached for each `tools` object, because apps send the same tools repeatedly.
    """
    rendered = _declarations.setdefault(tools, {})
    key = dialect.name, dialects.edition(), parallel, required
    block = rendered.get(key)
    if block is None:
        block = rendered[key] = dialect.render_tools(tools, parallel=parallel, required=required)
    return block


def _encode_messages(
    request: ToolRequest, turns: Sequence[Turn], dialect: Dialect, block: str, line: str
) -> list[Message]:
    own, turns = split_system(_with_ids(turns, dialect))
    messages: list[Message] = []
    results: list[Turn] = []
    for turn in turns:
        if turn.result is not None:
            results.append(turn)
            continue
        messages += _results_message(results, dialect, request.profile)
        results = []
        messages.append(_with_calls(turn, dialect, request.profile))
    messages += _results_message(results, dialect, request.profile, line)
    return fit_template(join_system(request, own, block), messages, request.profile)


def _with_ids(turns: Sequence[Turn], dialect: Dialect) -> list[Turn]:
    """Give the calls, and their results, ids in the form that the dialect writes."""
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
    """Append a turn's calls to its text, in the form that the model should write, because the model imitates them."""
    message = plain_message(turn, profile)
    if turn.calls:
        text, _ = split_content(message.get("content"))
        try:
            calls = dialect.render_calls(turn.calls)
        except RecursionError:
            raise UsageError("the arguments of a past call: nested too deeply to be written; flatten them") from None
        message["content"] = f"{text}\n{calls}" if text else calls
    elif turn.role == "assistant" and message.get("content") is None:
        message["content"] = ""
    return message


def _after_results(request: ToolRequest, turns: Sequence[Turn], sent: Mapping[str, str]) -> str:
    """Return the line to put after the results that end a conversation; without it, small models keep making calls.

    The line's first sentence makes small models answer; the second makes them continue if a step is missing. After a
    failed call, a different line is returned, because the usual one would make small models only report the error. If
    no tool is offered, the line only tells the model to answer; without it, small models copy the last call as text
    (docs/reference/matrix.md). If no results end the conversation, or a call is required, the line is empty.
    """
    if request.choice.forced or not turns or turns[-1].result is None:
        return ""
    if not len(request.offered):
        return f"Answer the user now{'' if request.json_answer else ', in plain text'}."
    callable_names = {name: sent.get(name, name) for name in request.offered.names}
    form = "" if request.json_answer else " in plain text"
    return _after_failure(answered_steps(turns), callable_names) or (
        f"If these results answer the user, write the answer now{form}. If an error can be mended, or a step that the"
        " user asked for is still missing, make the next call."
    )


def _after_failure(steps: Iterator[AnsweredStep], names: Mapping[str, str]) -> str:
    """Return the line that asks the model to repeat a failed call; empty if the call should not be repeated.

    `steps` yields the latest step first. `names` maps the tools that can be called to their names in the prompt.

    After the first error since the user's last message, the model is asked to correct the call once, since the error
    may say what is right. In the next step, models often call another tool and find what the failed call lacked. But
    then they report only the result of that tool, or have already repeated the failed call unchanged in the same step
    (Qwen2.5-Coder-1.5B). So the model is reminded of the failed call once. The model is not reminded if no other tool
    has found anything, since the reminder would only cause a needless call.
    """
    last, before = next(steps), next(steps, AnsweredStep((), ()))
    if not (last.failed or before.failed) or any(step.failed for step in steps):
        return ""
    if not before.failed:
        return "A call failed. If its result says what is right, call the tool again with that."
    due = [name for name in before.failed if name in names and name not in last.succeeded]
    if not due or set(last.succeeded) <= set(before.succeeded):
        return ""
    tools = " and ".join(names[name] for name in due)
    if set(due) <= set(last.failed):
        return f"{tools} failed. Call {tools} again now, with other arguments, taken from the other results."
    return f"{tools} failed before. If its result is still missing, call {tools} again now with what these results say."


def _results_message(turns: Sequence[Turn], dialect: Dialect, profile: Profile, line: str = "") -> list[Message]:
    """Render consecutive results as one user message.

    The message has the results, then a line of instructions, then the images of the results.
    """
    results: list[Result] = [turn.result for turn in turns if turn.result is not None]
    if not results:
        return []
    text = dialect.render_results(results)
    text = f"{text}\n\n{line}" if line else text
    images = [part for turn in turns for part in turn.attachments]
    if not images or not profile.content_parts:
        return [{"role": "user", "content": text}]
    return [{"role": "user", "content": [{"type": "text", "text": text}, *images]}]


def _add_stops(body: dict[str, Any], stops: Sequence[str]) -> None:
    """Add the dialect's stop strings to the request's own; they stop the model before it invents a result."""
    given = body.get("stop")
    own = [given] if isinstance(given, str) else [stop for stop in as_list(given) if isinstance(stop, str)]
    more = [stop for stop in stops if stop not in own]
    if more:
        body["stop"] = [*own, *more]
