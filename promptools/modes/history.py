"""Parse a conversation into turns, adapt it to a server's chat template, and find calls that it repeats.

Clients send all kinds of histories: calls without ids, ids used twice, arguments that are cut off or are objects,
results that name no call. One broken message would make a server refuse every further request of the conversation. So
unreadable arguments of past calls are replaced, and results are matched to their calls.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from promptools.errors import UsageError
from promptools.json_values import is_array, is_object, reject_constant, try_json, write_json
from promptools.jsontext.read import Unreadable, read_value
from promptools.parsing.reply_record import ID_LENGTH
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result
from promptools.wire.chat_decoder import REASONING_FIELDS
from promptools.wire.json_body import as_list, as_object, as_text, split_content

if TYPE_CHECKING:
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles import Profile
    from promptools.types import ModeName


_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NOT_QUOTABLE = frozenset(("assistant", "system", "developer"))
"""Roles whose messages do not count as text that the model may quote.

A call that also occurs in such a message is not a mere quotation: the model may repeat one of its own calls, or follow
the app's instructions, which show how to write calls.
"""
_OTHER_ROLES = {"developer": "system", "function": "tool"}
_ALNUM9 = lazy_pattern(rf"[0-9A-Za-z]{{{ID_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class Turn:
    """A parsed message of the conversation.

    For an assistant's message, `calls` holds the calls. For a tool's message, `result` holds the text, and
    `attachments` holds the other parts, such as images.
    """

    message: dict[str, Any]
    calls: tuple[Call, ...] = ()
    result: Result | None = None
    attachments: tuple[dict[str, Any], ...] = ()

    @property
    def role(self) -> str:
        """The message's role, with `system` in place of `developer`, and `tool` in place of the older `function`."""
        role = as_text(self.message.get("role"))
        return _OTHER_ROLES.get(role, role)


@dataclass(slots=True)
class _PendingCalls:
    """Keeps track of the calls that await results while a history is read in order."""

    names: dict[str, str] = field(default_factory=dict[str, str])
    pending: list[Call] = field(default_factory=list[Call])

    def add(self, calls: Sequence[Call]) -> None:
        self.pending = list(calls)
        self.names.update((call.id, call.name) for call in calls)

    def match_result(self, call_id: str, name: str) -> tuple[str, str]:
        """Return the id and name of the call that a result belongs to.

        The call is found by id, or else by name. For a result without an id, it may also be the first call that still
        awaits a result.
        """
        call = next((pending for pending in self.pending if pending.id == call_id), None)
        if call is None and call_id in self.names:
            return call_id, name or self.names[call_id]
        if call is None:
            call = next((pending for pending in self.pending if pending.name == name), None)
        # The Python SDK of Ollama drops the id of a result (0.6.1).
        if call is None and not call_id:
            call = next(iter(self.pending), None)
        if call is None:
            return call_id, name
        self.pending.remove(call)
        return call.id, name or call.name


def parse_history(messages: Iterable[Mapping[str, Any]]) -> tuple[list[Turn], tuple[str, ...]]:
    """Parse messages into turns; also return notes on what was repaired. O(n) in the size of the conversation."""
    turns: list[Turn] = []
    notes: list[str] = []
    links = _PendingCalls()
    for position, message in enumerate(messages):
        turn = Turn(dict(message))
        if turn.role == "assistant":
            calls = _calls(message, position, notes)
            if calls:
                links.add(calls)
            turn = replace(turn, calls=calls)
        elif turn.role == "tool":
            text, images = split_content(message.get("content"))
            call_id, name = links.match_result(as_text(message.get("tool_call_id")), as_text(message.get("name")))
            turn = replace(turn, result=Result(call_id, name, text, is_error=_is_error(message)), attachments=images)
        turns.append(turn)
    return turns, tuple(notes)


def quotable_texts(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the texts that the model may quote: user messages and tool results. O(n) in their size."""
    for message in messages:
        if as_text(message.get("role")) not in _NOT_QUOTABLE:
            yield split_content(message.get("content"))[0]


def _is_error(message: Mapping[str, Any]) -> bool:
    """Return whether the client marked a tool result as an error, in a field that Chat Completions does not define.

    The text of the result is not considered.
    """
    return message.get("is_error") is True or message.get("isError") is True or message.get("status") == "error"


def _calls(message: Mapping[str, Any], position: int, notes: list[str]) -> tuple[Call, ...]:
    raw_calls = [call for call in as_list(message.get("tool_calls")) if is_object(call)]
    legacy = message.get("function_call")
    if not raw_calls and is_object(legacy):
        raw_calls = [{"function": legacy}]
    calls: list[Call] = []
    seen: set[str] = set()
    for number, call in enumerate(raw_calls):
        function = as_object(call.get("function")) or as_object(call.get("custom"))
        call_id = as_text(call.get("id"))
        if not call_id or call_id in seen:
            call_id = alnum9_id(f"{position}.{number}")
        seen.add(call_id)
        name = as_text(function.get("name"))
        calls.append(_call(call_id, name, function.get("arguments", function.get("input")), notes))
    return tuple(calls)


def _call(call_id: str, name: str, arguments: Any, notes: list[str]) -> Call:
    """Parse a past call; unreadable arguments become `{}`, since servers refuse a history with broken JSON."""
    if is_object(arguments):
        return Call(call_id, name, arguments, _dump(arguments))
    text = as_text(arguments)
    # On this turn and every later one, Ollama's /v1 refuses an empty string and broken JSON, llama.cpp broken JSON.
    if not text.strip():
        return Call(call_id, name, {}, "{}")
    value = try_json(text, parse_constant=reject_constant)
    if is_object(value):
        return Call(call_id, name, value, text)
    try:
        value = read_value(text, supply_closers=True).value
    except Unreadable:
        value = None
    repaired = value if is_object(value) else {}
    how = "mended" if repaired else "sent as {}"
    notes.append(f"history: the arguments of a past call of {name!r} are not a JSON object and were {how}")
    return Call(call_id, name, repaired, _dump(repaired))


def _dump(value: Any) -> str:
    return write_json(value, "the arguments of a past call")


def alnum9_id(call_id: str) -> str:
    """Return `call_id` if it is nine letters and digits. If not, return such an id, made from its hash (vllm#9019)."""
    if _ALNUM9.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    letters: list[str] = []
    for _ in range(ID_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return "".join(letters)


# Adapt messages to what a server's chat template accepts: system text, parts, alternating roles, reasoning.


Message = dict[str, Any]
BLANK_LINE = "\n\n"
FIRST_USER_MESSAGE = "(The conversation begins.)"
"""The user message that is put before a conversation that begins with the assistant, if the template forbids that."""
LATER_SYSTEM = "(System message)\n"
"""The prefix of a system message that is sent as a user message."""
_SYSTEM_ROLES = frozenset(("system", "developer"))


def has_stray_system(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a conversation has a `developer` message, or a system message that is not its first message."""
    return any(
        message.get("role") == "developer" or (position and message.get("role") == "system")
        for position, message in enumerate(messages)
    )


def place_system(turns: Sequence[Turn], profile: Profile) -> tuple[list[Turn], tuple[str, ...]]:
    """Turn system messages after the beginning into marked user messages, unless the template accepts them there.

    Also returns a note for the trace, if there are such messages. The messages are not moved into the first message,
    because that would change the beginning of the prompt, which the server has cached. As user messages they count as
    foreign text, so their markup is escaped and cannot be read as markup of the conversation.
    """
    placed = list(turns)
    # Qwen3.5's template raises `System message must be at the beginning.` (llama.cpp#27367).
    if profile.system_place == "anywhere":
        return placed, ()
    opening = next((position for position, turn in enumerate(placed) if turn.role != "system"), len(placed))
    later = [position for position, turn in enumerate(placed) if turn.role == "system" and position > opening]
    for position in later:
        placed[position] = _as_user(placed[position])
    note = f"system messages after the beginning were sent as the user's, marked: {len(later)}"
    return placed, (note,) if later else ()


def _as_user(turn: Turn) -> Turn:
    return Turn({**turn.message, "role": "user", "content": _marked(turn.message.get("content"))})


def _marked(content: Any) -> Any:
    if is_array(content):
        return [{"type": "text", "text": LATER_SYSTEM}, *content]
    return LATER_SYSTEM + as_text(content)


def plain_message(turn: Turn, profile: Profile) -> Message:
    """Copy a message, but leave out its calls, and null fields other than `content`.

    Its content parts and its reasoning field are adapted to the server.
    """
    dropped = {"tool_calls", "function_call", *REASONING_FIELDS}
    message = {
        key: value
        for key, value in turn.message.items()
        if key not in dropped and (value is not None or key == "content")
    }
    reasoning = next((field for key in REASONING_FIELDS if (field := as_text(turn.message.get(key)))), "")
    if turn.role == "assistant" and reasoning:
        # vLLM from 0.16 on drops `reasoning_content` (vllm#33402).
        message[profile.reasoning_field] = reasoning
    content = message.get("content")
    if is_array(content) and not profile.content_parts:
        text, others = split_content(content)
        if not others:
            message["content"] = text
    return message


def split_system(turns: Sequence[Turn]) -> tuple[list[str], list[Turn]]:
    """Split a conversation into its initial system texts and the turns after them."""
    texts: list[str] = []
    for position, turn in enumerate(turns):
        if turn.role != "system":
            return texts, list(turns[position:])
        texts.append(split_content(turn.message.get("content"))[0])
    return texts, []


def join_system(request: ToolRequest, own_texts: Sequence[str], tool_block: str) -> str:
    """Join the parts of the system message: the app's own system texts, the tool block, and the config's prompt.

    `system_prompt_placement` says where the config's prompt goes, and whether it replaces the app's own texts.
    """
    configured = request.system_prompt
    match request.profile.system_prompt_placement:
        case "append":
            texts = [*own_texts, tool_block, configured]
        case "replace" if configured:
            texts = [configured, tool_block]
        case _:
            texts = [configured, *own_texts, tool_block]
    return BLANK_LINE.join(text for text in texts if text.strip())


def join_contents(first: Any, second: Any) -> Any:
    """Join two contents: strings with a blank line between them, anything else as a list of parts."""
    if isinstance(first, str) and isinstance(second, str):
        return BLANK_LINE.join(text for text in (first, second) if text)
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    if is_array(content):
        return content
    text = as_text(content)
    return [{"type": "text", "text": text}] if text else []


def fit_template(system: str, messages: Iterable[Message], profile: Profile) -> list[Message]:
    """Prepend the system text, and change roles where the profile's template requires it."""
    settled = list(messages)
    if profile.alternate_roles or not profile.system_role:
        settled = [
            {**message, "role": "user"} if message.get("role") in _SYSTEM_ROLES else message for message in settled
        ]
    # Gemma's template raises `System role not supported`.
    if system and not profile.system_role:
        settled = _prepend_to_user(system, settled)
        system = ""
    # Mistral's and Gemma's templates raise an error for two adjacent messages of one role (autogen#3597).
    if profile.alternate_roles:
        settled = _merge_same_roles(settled)
    return [{"role": "system", "content": system}, *settled] if system else settled


def _prepend_to_user(system: str, messages: list[Message]) -> list[Message]:
    """Prepend the system text to the first message if it is the user's, else put a new user message before it."""
    if messages and messages[0].get("role") == "user":
        return [{**messages[0], "content": join_contents(system, messages[0].get("content"))}, *messages[1:]]
    return [{"role": "user", "content": system}, *messages]


def _merge_same_roles(messages: Sequence[Message]) -> list[Message]:
    """Merge adjacent messages with the same role; if the assistant comes first, add a user message at the beginning.

    Results are never merged, and nothing is merged into a message with calls.
    """
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        same = last is not None and last.get("role") == message.get("role") and message.get("role") != "tool"
        if last is not None and same and "tool_calls" not in last:
            merged[-1] = {**last, **message, "content": join_contents(last.get("content"), message.get("content"))}
        else:
            merged.append(message)
    if merged and merged[0].get("role") == "assistant":
        merged.insert(0, {"role": "user", "content": FIRST_USER_MESSAGE})
    return merged


# Calls that a conversation repeats: the same tool, the same arguments, the same result.
#
# A model that does not see that a result answers the question makes the call again and again (pi#6158,
# opencode#28596, openclaw#120415). A line after the last result tells the model that it repeats the call. Nothing is
# withheld, and no call is refused: to ask again is legitimate, and a call whose result changes is not a repetition.


RepeatAction = Literal["hint", "answer", "none"]
"""What is done about a repeated call.

`hint` adds a line to the prompt, `answer` asks for an answer without tools, and `none` only notes it in the trace.
"""
PROMPTING_MODES: frozenset[ModeName] = frozenset({"prompt", "harmony"})
"""The modes in which promptools itself writes the prompt; in these modes, `hint` is the default action."""
_RESULT_ROLES = frozenset(("tool", "function"))


class RepeatedCall(NamedTuple):
    """A call in the last assistant message, and how many times it occurs in the conversation with the same result."""

    name: str
    times: int

    def note(self, action: RepeatAction) -> str:
        """Return the note for the trace, which says that the call is repeated and what is done about it."""
        done = {"hint": "the model is told so", "answer": "it is asked to answer, by tool_choice none", "none": ""}
        told = f"{self.name!r} was called {self.times} times with the same arguments and the same result"
        return f"{told}: {done[action]}" if done[action] else told

    def hint(self, name: str) -> str:
        """Return the line that tells the model about the repetition; `name` is the tool's name in the prompt."""
        return (
            f"(Note: {name} was called {self.times} times with these arguments, each time with this result. It is"
            " above.)"
        )


class _Answered(NamedTuple):
    """A call and its result as strings, so that repeated calls can be found by comparison."""

    name: str
    arguments: str
    result: str


def find_repeated(messages: Sequence[Mapping[str, Any]], least: int) -> RepeatedCall | None:
    """Return a call in the last assistant message that was made `least` or more times with the same result.

    If there are several such calls, return the most frequent one. Return None if no call was made that often, or if the
    model has answered since. O(n) in the size of the conversation.
    """
    starts = [position for position, message in enumerate(messages) if message.get("role") == "assistant"]
    if least < 1 or not starts:
        return None
    try:
        latest = Counter(_answered_calls(messages[starts[-1] :]))
        results = _results(messages[starts[-1] :])
        for start, end in pairwise(starts if latest else ()):
            turn = messages[start:end]
            if not results.isdisjoint(_results(turn)):  # this rules out most turns without parsing
                latest.update(answered for answered in _answered_calls(turn) if answered in latest)
    except (UsageError, RecursionError):  # arguments that are nested too deeply to be compared
        return None
    return next((RepeatedCall(made.name, times) for made, times in latest.most_common(1) if times >= least), None)


def without_repeats(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns; if several turns with calls have the same text, calls and results, keep only the last.

    Only turns since the user's last message are compared, each together with the results that follow it. A small model
    that sees a call twice keeps repeating the call, even if it is told not to. O(n) in the size of the conversation.
    """
    asked = next((at for at in reversed(range(len(turns))) if turns[at].role == "user"), -1)
    steps: list[list[Turn]] = []
    for turn in turns[asked + 1 :]:
        if turn.result is None or not steps:
            steps.append([])
        steps[-1].append(turn)
    keys = [_step_key(step) for step in steps]
    last = {key: number for number, key in enumerate(keys)}
    kept = (step for number, step in enumerate(steps) if not keys[number] or last[keys[number]] == number)
    return [*turns[: asked + 1], *(turn for step in kept for turn in step)]


def _step_key(step: Sequence[Turn]) -> str:
    """Return a key for a turn and the results that follow it; equal turns have equal keys.

    The key is empty for a turn that cannot be a repetition, such as one without calls.
    """
    if not step[0].calls:
        return ""
    calls = [(call.name, call.arguments) for call in step[0].calls]
    results = [(turn.result.content.strip(), turn.attachments) for turn in step[1:] if turn.result is not None]
    text = split_content(step[0].message.get("content"))[0].strip()
    try:
        return json.dumps([text, calls, results], sort_keys=True)
    except RecursionError:  # nested too deeply to be compared, or written
        return ""


def hint_turns(
    request: ToolRequest, mode: ModeName, turns: list[Turn], sent: Mapping[str, str]
) -> tuple[list[Turn], tuple[str, ...]]:
    """Return the turns, with a hint about a repeated call if that is the action in `mode`; also return trace notes.

    In prompt and harmony mode the hint is given by default; in other modes only with `on_repeat="hint"`. `sent` maps
    the names of tools to the names under which they are sent to the server.
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
    """Return the messages, with a hint about a repeated call if that is the action in `mode`; also return trace notes.

    This is `hint_turns` for messages in the client's format.
    """
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
    """Return a copy of a result's message, with a line added after its content."""
    content = message.get("content")
    if is_array(content):
        return {**message, "content": [*content, {"type": "text", "text": line}]}
    return {**message, "content": _with_line(as_text(content), line)}


def _with_line(text: str, line: str) -> str:
    return f"{text}\n\n{line}" if text.strip() else line


def _results(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the distinct contents of the results in a turn; contents that are not strings count as empty."""
    contents = [message.get("content") for message in messages if message.get("role") in _RESULT_ROLES]
    return {content.strip() if isinstance(content, str) else "" for content in contents}


def _answered_calls(messages: Sequence[Mapping[str, Any]]) -> list[_Answered]:
    """Return the calls of the first message, with their results from the other messages."""
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
