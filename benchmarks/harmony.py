"""Harmony against OpenAI's own library: text against token ids."""

from __future__ import annotations

import sys
from typing import Any

import openai_harmony as library

from benchmarks import samples, trajectory, vocabulary
from benchmarks.table import Row, Table, Target
from benchmarks.timing import Job, best_of, seconds
from promptools.harmony import declare
from promptools.harmony.convert import Options, convert
from promptools.harmony.render import Developer, Message, System, render, render_ids
from promptools.harmony.vocabulary import load_encode, load_encoding

RENDER = Target("at least", 5, ">= 5x faster than openai-harmony")
TURNS = (0, 1, 10, 100)
EVERYTHING = Options(thoughts="keep", date="2026-11-21")
WHOLE = library.RenderConversationConfig(auto_drop_analysis=False)


def harmony_render() -> Table:
    """A Chat Completions request as text, conversion included, against the library's ids of a ready conversation."""
    title = "A request as Harmony: our text from the request's own messages, its ids from messages made ready for it"
    if why_not := vocabulary.why_not():
        print(f"!!! no figures: {why_not}", file=sys.stderr, flush=True)
        return Table("harmony_render", title, [Row(f"not measured: {why_not}", {})])
    rows = []
    for turns in TURNS:
        messages = trajectory.messages(turns)
        said = convert(messages, samples.TOOLS, options=EVERYTHING).messages
        theirs = library.Conversation.from_messages([_message(each) for each in said])
        text, ids = render(said), _ids(theirs)
        assert load_encoding().decode_utf8(ids) == text
        assert render_ids(said, load_encode()) == ids
        jobs: dict[str, Job] = {
            "ours, text": lambda messages=messages: _text(messages),
            "tools never seen": lambda messages=messages: _anew(messages),
            "ours, ids": lambda messages=messages: _our_ids(messages),
            "library, ids": lambda theirs=theirs: _ids(theirs),
        }
        took = best_of(jobs)
        ratio = took["library, ids"] / took["ours, text"]
        shown = {name: seconds(each) for name, each in took.items()}
        case = f"{turns} turns, {len(text) / 1000:.1f} KB, {len(ids)} tokens"
        rows.append(Row(case, {**shown, "ratio": f"{ratio:.1f}x"}, ratio, RENDER, took))
    return Table("harmony_render", title, rows)


def _text(messages: list[dict[str, Any]]) -> str:
    return render(convert(messages, samples.TOOLS, options=EVERYTHING).messages)


def _anew(messages: list[dict[str, Any]]) -> str:
    declare._remember.cache_clear()  # noqa: SLF001  nobody but a benchmark wants it forgotten
    return _text(messages)


def _our_ids(messages: list[dict[str, Any]]) -> list[int]:
    return render_ids(convert(messages, samples.TOOLS, options=EVERYTHING).messages, load_encode())


def _ids(said: Any) -> list[int]:
    return load_encoding().render_conversation_for_completion(said, library.Role.ASSISTANT, WHOLE)


def _message(message: Message) -> Any:
    """Give one of our messages as the library's."""
    author = library.Author(role=library.Role(message.role), name=message.name or None)
    made = library.Message.from_author_and_content(author, _content(message.content))
    made.channel, made.recipient = message.channel or None, message.recipient or None
    made.content_type = message.content_type or None
    return made


def _content(content: str | System | Developer) -> Any:
    match content:
        case System() as said:
            made = library.SystemContent.new().with_conversation_start_date(said.date or "")
            return made.with_reasoning_effort(library.ReasoningEffort((said.effort or "medium").capitalize()))
        case Developer() as said:
            tools = [library.ToolDescription.new(*each) for each in said.functions or ()]
            return library.DeveloperContent.new().with_instructions(said.instructions).with_function_tools(tools)
        case text:
            return text
