"""openai-harmony as the oracle: our values as its own, and what it writes for them."""

from __future__ import annotations

import hashlib
import importlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import environments
import pytest

from promptools.harmony.bpe_vocabulary import FILE_NAME, FOLDER_VARIABLE, SHA256, load_encoding
from promptools.harmony.renderer import DeveloperContent, Message, SystemContent
from promptools.harmony.tool_declarations import FunctionDeclaration

MARK = "NO ORACLE"
"""Stands in the reason of a skip; `pytest_terminal_summary` in the conftest of all tests makes it a warning."""


_FOUND: list[Path] = []
"""The vocabulary's file, for tests that change the environment which told of it."""


@cache
def why_not() -> str:
    """Say why there is no oracle here, or find its vocabulary and say nothing."""
    try:
        importlib.import_module("openai_harmony")
    except ImportError:
        return f"{MARK}: openai-harmony is not installed; pip install -e '.[harmony]'"
    told = os.environ.get(FOLDER_VARIABLE)
    if not told and environments.is_made("o200k"):
        told = os.environ[FOLDER_VARIABLE] = str(environments.folder_of("o200k"))
    if not told:
        return f"{MARK}: there is no vocabulary; python tools/environments.py o200k, or {FOLDER_VARIABLE}"
    path = Path(told) / FILE_NAME
    if not path.is_file():
        return f"{MARK}: {FOLDER_VARIABLE} names a folder without {FILE_NAME}"
    _FOUND.append(path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    return "" if found == SHA256 else f"{MARK}: {path} is not o200k_base: its sha256 is {found}"


@cache
def library() -> Any:
    """Return the library, or skip."""
    if reason := why_not():
        pytest.skip(reason)
    return importlib.import_module("openai_harmony")


@cache
def file() -> Path:
    """Return the vocabulary's file, or skip."""
    library()
    return _FOUND[0]


def encoding() -> Any:
    """Return its encoding, or skip."""
    library()
    return load_encoding()


def ids_of(messages: list[Message], then: str | None = None) -> list[int]:
    """Have the library write a conversation, nothing dropped."""
    oh = library()
    config = oh.RenderConversationConfig(auto_drop_analysis=False)
    said = oh.Conversation.from_messages([message_of(message) for message in messages])
    if then is None:
        return encoding().render_conversation(said, config)
    return encoding().render_conversation_for_completion(said, oh.Role(then), config)


def text_of(messages: list[Message], then: str | None = None) -> str:
    """Have the library write a conversation as text."""
    return encoding().decode_utf8(ids_of(messages, then))


def type_of(schema: Any) -> str:
    """Have the library write the type of one function's parameters."""
    text = text_of([Message("developer", DeveloperContent(functions=(FunctionDeclaration("f", "", schema),)))])
    before = "type f = (_: "
    return text[text.index(before) + len(before) : text.rindex(") => any;")]


def message_of(message: Message) -> Any:
    """Return a message as the library's."""
    oh = library()
    made = oh.Message.from_author_and_content(
        oh.Author(role=oh.Role(message.role), name=message.name or None), _content(message.content)
    )
    made.channel = message.channel or None
    made.recipient = message.recipient or None
    made.content_type = message.content_type or None
    return made


def _content(content: str | SystemContent | DeveloperContent) -> Any:
    oh = library()
    match content:
        case SystemContent() as said:
            channels = oh.ChannelConfig.require_channels(list(said.channels))
            made = oh.SystemContent(
                model_identity=said.identity,
                knowledge_cutoff=said.cutoff,
                conversation_start_date=said.date,
                reasoning_effort=None if said.effort is None else oh.ReasoningEffort(said.effort.capitalize()),
                channel_config=channels if said.channels else None,
            )
            for space in said.namespaces:
                made = made.with_tools(_namespace(space.name, space.functions, space.description))
            return made
        case DeveloperContent() as said:
            made = oh.DeveloperContent(instructions=said.instructions or None)
            if said.functions is not None:
                made = made.with_tools(_namespace("functions", said.functions, ""))
            for space in said.namespaces:
                made = made.with_tools(_namespace(space.name, space.functions, space.description))
            return made
        case text:
            return text


def _namespace(name: str, functions: Any, description: str) -> Any:
    oh = library()
    tools = [oh.ToolDescription.new(function.name, function.description, function.parameters) for function in functions]
    return oh.ToolNamespaceConfig(name=name, description=description or None, tools=tools)
