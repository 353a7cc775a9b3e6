"""Compare promptools' Harmony with OpenAI's own library: rendering, as text or as token ids, and parsing by token."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import openai_harmony as library

from benchmarks import samples, trajectory, vocabulary
from benchmarks.table import Row, Table, Target
from benchmarks.timing import Job, best_of, seconds
from promptools import StreamParser
from promptools.harmony import tool_declarations, transcript
from promptools.harmony.bpe_vocabulary import load_encode, load_encoding
from promptools.harmony.conversation import Options, convert
from promptools.harmony.renderer import DeveloperContent, Message, SystemContent, encode_messages, render_messages

RENDER = Target("at least", 5, ">= 5x faster than openai-harmony")
PARSE = Target("at most", 2, "<= 2x openai-harmony")
FLAT = Target("at most", 1.5, "<= 1.5x from 1 KB to 1 MB")
TURNS = (0, 1, 10, 100)
THOUGHT = "<|channel|>analysis<|message|>"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
AGAINST = 10_000
EVERYTHING = Options(thoughts="keep", date="2026-11-21")
WHOLE = library.RenderConversationConfig(auto_drop_analysis=False)


def harmony_render() -> Table:
    """Measure rendering a request, conversion included; the library renders messages that are already converted."""
    title = "A request as Harmony: our text from the request's own messages, its ids from messages made ready for it"
    if why_not := vocabulary.why_not():
        return _nothing("harmony_render", title, why_not)
    rows = []
    for turns in TURNS:
        messages = trajectory.messages(turns)
        converted = convert(messages, samples.TOOLS, options=EVERYTHING).messages
        theirs = library.Conversation.from_messages([_message(message) for message in converted])
        text, ids = render_messages(converted), _ids(theirs)
        assert load_encoding().decode_utf8(ids) == text
        assert encode_messages(converted, load_encode()) == ids
        jobs: dict[str, Job] = {
            "ours, text": lambda messages=messages: _text(messages),
            "tools never seen": lambda messages=messages: _anew(messages),
            "ours, ids": lambda messages=messages: _our_ids(messages),
            "library, ids": lambda theirs=theirs: _ids(theirs),
        }
        times = best_of(jobs)
        ratio = times["library, ids"] / times["ours, text"]
        shown = {name: seconds(time) for name, time in times.items()}
        case = f"{turns} turns, {len(text) / 1000:.1f} KB, {len(ids)} tokens"
        rows.append(Row(case, {**shown, "ratio": f"{ratio:.1f}x"}, ratio, RENDER, times))
    return Table("harmony_render", title, rows)


def harmony_parse() -> tuple[Table, ...]:
    """Measure parsing a reply token by token: the time per token beside the library's, and for longer replies."""
    title = "A reply in Harmony, token by token: the time of one token at 10 KB"
    if why_not := vocabulary.why_not():
        return (_nothing("harmony_parse", title, why_not),)
    against, growth = [], []
    for case, reply in REPLIES.items():
        ids = {size: load_encoding().encode(reply(size), allowed_special="all") for size in SIZES}
        times = _per_token(ids)
        shown = {name: seconds(time) for name, time in times.items()}
        ratio = times["ours"] / times["library"]
        against.append(Row(case, {**shown, "ratio": f"{ratio:.2f}x"}, ratio, PARSE, times))
        costs = _growth(ids)
        first, *others = costs.values()
        shown = {name: seconds(time) for name, time in costs.items()}
        grown = max(others) / first
        growth.append(Row(case, {**shown, "growth": f"{grown:.2f}x"}, grown, FLAT, costs))
    return (
        Table("harmony_parse", title, against),
        Table("harmony_parse_growth", "The same from 1 KB to 1 MB, ours", growth),
    )


def _per_token(replies: Mapping[int, Sequence[int]]) -> dict[str, float]:
    """Return the time per token of each way to parse a reply, after checking that the ways agree."""
    ids = replies[AGAINST]
    pieces = _pieces(ids)
    theirs, ours = _theirs(ids), _ours(pieces)
    assert [(message.channel, message.recipient, message.content[0].text) for message in theirs.messages] == [
        (item.message.channel, item.message.recipient or None, item.message.content) for item in ours.parsed.messages
    ]
    jobs: dict[str, Job] = {
        "ours": lambda: _ours(pieces),
        "library": lambda: _theirs(ids),
        "library, words read": lambda: _theirs_read(ids),
        "ours, calls checked": lambda: _checked(pieces),
    }
    return {name: time / len(ids) for name, time in best_of(jobs).items()}


def _growth(replies: Mapping[int, Sequence[int]]) -> dict[str, float]:
    """Return the time per token for replies of each size; the sizes take turns."""
    pieces = {f"{size // 1000:,} KB": _pieces(ids) for size, ids in replies.items()}
    jobs: dict[str, Job] = {size: lambda cut=cut: _ours(cut) for size, cut in pieces.items()}
    return {size: time / len(pieces[size]) for size, time in best_of(jobs).items()}


def _pieces(ids: Sequence[int]) -> list[str]:
    return [load_encoding().decode_utf8([token]) for token in ids]


def _ours(pieces: Sequence[str]) -> transcript.StreamParser:
    parser = transcript.StreamParser("assistant")
    for piece in pieces:
        parser.feed(piece)
    parser.close()
    return parser


def _theirs(ids: Sequence[int]) -> Any:
    parser = library.StreamableParser(load_encoding(), library.Role.ASSISTANT)
    for token in ids:
        parser.process(token)
    parser.process_eos()
    return parser


def _theirs_read(ids: Sequence[int]) -> None:
    """Parse with the library, and read the delta of each token, as streaming requires."""
    parser = library.StreamableParser(load_encoding(), library.Role.ASSISTANT)
    for token in ids:
        parser.process(token)
        _ = parser.last_content_delta
    parser.process_eos()


def _checked(pieces: Sequence[str]) -> None:
    parser = StreamParser(samples.TOOLS, dialect="harmony")
    for piece in pieces:
        parser.feed(piece)
    parser.close()


def _thoughts(size: int) -> str:
    return THOUGHT + samples.prose(size)


def _call(size: int) -> str:
    header = "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>"
    return header + json.dumps({"path": "a", "content": samples.code(size)})


def _messages(size: int) -> str:
    short = f"{THOUGHT}{samples.prose(300)}<|end|><|start|>assistant"
    return short * (size // len(short)) + "<|channel|>final<|message|>Yes."


REPLIES: dict[str, Callable[[int], str]] = {"thoughts": _thoughts, "a call": _call, "many messages": _messages}


def _nothing(name: str, title: str, why_not: str) -> Table:
    print(f"!!! no figures for {name}: {why_not}", file=sys.stderr, flush=True)
    return Table(name, title, [Row(f"not measured: {why_not}", {})])


def _text(messages: list[dict[str, Any]]) -> str:
    return render_messages(convert(messages, samples.TOOLS, options=EVERYTHING).messages)


def _anew(messages: list[dict[str, Any]]) -> str:
    tool_declarations._TYPE_CACHE.clear()  # noqa: SLF001  nobody but a benchmark wants it forgotten
    return _text(messages)


def _our_ids(messages: list[dict[str, Any]]) -> list[int]:
    return encode_messages(convert(messages, samples.TOOLS, options=EVERYTHING).messages, load_encode())


def _ids(conversation: Any) -> list[int]:
    return load_encoding().render_conversation_for_completion(conversation, library.Role.ASSISTANT, WHOLE)


def _message(message: Message) -> Any:
    """Convert one of our messages to the library's."""
    author = library.Author(role=library.Role(message.role), name=message.name or None)
    theirs = library.Message.from_author_and_content(author, _content(message.content))
    theirs.channel, theirs.recipient = message.channel or None, message.recipient or None
    theirs.content_type = message.content_type or None
    return theirs


def _content(content: str | SystemContent | DeveloperContent) -> Any:
    match content:
        case SystemContent() as content:
            made = library.SystemContent.new().with_conversation_start_date(content.date or "")
            return made.with_reasoning_effort(library.ReasoningEffort((content.effort or "medium").capitalize()))
        case DeveloperContent() as content:
            tools = [library.ToolDescription.new(*function) for function in content.functions or ()]
            return library.DeveloperContent.new().with_instructions(content.instructions).with_function_tools(tools)
        case text:
            return text
