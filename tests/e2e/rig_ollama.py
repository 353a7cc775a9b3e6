"""A real Ollama for its own tests: one server with a model of each kind, and what each says.

A row of `SAID` is a way to fail, and what a model of a kind says to fail so; `cue` is the question that makes it. Rows
of `PROMPTED` are what it says when the tools are in the prompt.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import environments
import httpx
import pytest
import repairs
import table
from recipes.recipe import CannotMakeError
from rig.ollama import OllamaTemplate, ScriptedModel, serve_models
from rig.probing import probe_lines
from scenes import ANSWER, FENCED_CALL, HARMONY_CALL, HERMES_CALL, QUESTION, RESULT, THOUGHT, WORDS

from promptools.lab.script import ScriptedReply
from promptools.lab.server_process import Server
from promptools.lab.weather import prompt_mode_phrase

Way = Literal["chat", "chat streamed", "v1", "v1 streamed"]
WAYS: tuple[Way, ...] = ("chat", "chat streamed", "v1", "v1 streamed")

KINDS: tuple[OllamaTemplate, ...] = ("go", "jinja", "gptoss", "coder", "think")
"""Kinds of model that take tools; `notools` is the other one."""

XML_CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
BEFORE = "I will look.\n"
AFTER = "\nThat was the call."

_HERMES = {
    "fine": HERMES_CALL,
    "broken": HERMES_CALL.replace('"Paris"', "Paris"),
    "cut": HERMES_CALL.replace("Paris", f"Paris {WORDS}"),
    "unknown": HERMES_CALL.replace("get_weather", "get_stocks"),
    "foreign": BEFORE + XML_CALL,
    "after": HERMES_CALL + AFTER,
    "unclosed": HERMES_CALL.removesuffix("\n</tool_call>"),
    "string": HERMES_CALL.replace('{"city": "Paris"}', json.dumps('{"city": "Paris"}')),
    "types": HERMES_CALL.replace('"Paris"', "75001"),
    "two": f"{HERMES_CALL}\n{HERMES_CALL.replace('Paris', 'Rome')}",
    "fenced": BEFORE + FENCED_CALL,
}

SAID: dict[OllamaTemplate, dict[str, str]] = {
    "go": _HERMES,
    "jinja": _HERMES,
    "think": {name: f"Need the tool.\n</think>\n\n{text}" for name, text in _HERMES.items()},
    "gptoss": {
        "fine": THOUGHT + HARMONY_CALL,
        "broken": THOUGHT + HARMONY_CALL.replace('"Paris"', "Paris"),
        "cut": THOUGHT + HARMONY_CALL.replace("Paris", f"Paris {WORDS}"),
        "unknown": THOUGHT + HARMONY_CALL.replace("get_weather", "get_stocks"),
        "foreign": BEFORE + HERMES_CALL,
        "string": THOUGHT + HARMONY_CALL.replace('{"city": "Paris"}', json.dumps('{"city": "Paris"}')),
        "types": THOUGHT + HARMONY_CALL.replace('"Paris"', "75001"),
        "fenced": f"{THOUGHT}<|channel|>final<|message|>{FENCED_CALL}<|return|>",
    },
    "coder": {
        "fine": XML_CALL,
        "broken": XML_CALL.replace("</parameter>\n", ""),
        "cut": XML_CALL.replace("Paris", f"Paris {WORDS}"),
        "unknown": XML_CALL.replace("get_weather", "get_stocks"),
        "foreign": BEFORE + HERMES_CALL,
        "after": XML_CALL + AFTER,
        "unclosed": XML_CALL.removesuffix("\n</tool_call>"),
        "types": XML_CALL.replace("Paris", "75001"),
        "two": f"{XML_CALL}\n{XML_CALL.replace('Paris', 'Rome')}",
        "fenced": BEFORE + FENCED_CALL,
    },
}


UNFIT = "What is it like in three days?"
"""The question after which a model calls without the argument that its tool requires, however it is asked."""


def cue(cell: str) -> str:
    """Return the question that makes a model fail so."""
    return f"Cell: {cell}."


FAMILIES: dict[OllamaTemplate, table.Family] = {
    "go": "hermes",
    "jinja": "hermes",
    "gptoss": "harmony",
    "coder": "coder",
    "think": "think",
    "notools": "hermes",
}
"""How those kinds speak that the table is played on."""


def lines(kind: OllamaTemplate) -> list[ScriptedReply]:
    """Return what the model of a kind says."""
    prompted, call = prompt_mode_phrase(dialect(kind)), HERMES_CALL if dialect(kind) == "hermes" else FENCED_CALL
    said = SAID.get(kind, {"fine": FENCED_CALL})
    return [
        *(table.lines(f"ollama-{kind}", FAMILIES[kind], prompted, dialect(kind)) if kind in FAMILIES else ()),
        *probe_lines(FAMILIES[kind], dialect(kind), raw=False),
        ScriptedReply(QUESTION, said["fine"]),
        ScriptedReply(QUESTION, _plain(kind, BEFORE + call), setting=prompted),
        ScriptedReply(RESULT, _plain(kind, ANSWER)),
        ScriptedReply("Say words", _plain(kind, WORDS)),
        *([ScriptedReply(UNFIT, HERMES_CALL.replace('"city": "Paris"', '"days": 3'))] if kind == "go" else ()),
        *(ScriptedReply(cue(cell), text) for cell, text in said.items()),
        *(ScriptedReply(cue(cell), _plain(kind, BEFORE + call), setting=prompted) for cell in said if cell != "cut"),
        ScriptedReply(cue("cut"), _plain(kind, call.replace("Paris", f"Paris {WORDS}")), setting=prompted),
        *(repairs.gpt_oss(repairs.SHARED) if kind == "gptoss" else repairs.hermes() if kind == "go" else ()),
    ]


def dialect(kind: OllamaTemplate) -> str:
    """Return what prompt mode asks for: Hermes tags where a template tells of them and no PARSER reads them."""
    return "hermes" if kind in {"go", "jinja"} else "json"


def _plain(kind: OllamaTemplate, text: str) -> str:
    if kind == "gptoss":
        return f"<|channel|>final<|message|>{text}<|return|>"
    return f"Simple.\n</think>\n\n{text}" if kind == "think" else text


_OWN = re.compile(r"test_ollama_(?:context|faults|learned)\b")
"""Tests that have an Ollama to themselves."""
_ROWS = re.compile(r"test_(?:table|results)\.py.*\[(ollama-\w+)-")


def scope_of(test: str) -> str | None:
    """Return the test file that has its own Ollama, or the rig whose rows a test plays: its id holds the name."""
    own, rows = _OWN.search(test), _ROWS.search(test)
    return own[0] if own else rows[1] if rows else None


def program() -> Path:
    """Return the `ollama` to run, made when it is not there; where it cannot be made, the test is skipped or fails."""
    try:
        return environments.path_of("ollama")
    except CannotMakeError as error:
        if os.environ.get("PROMPTOOLS_E2E") == "required":
            pytest.fail(f"Ollama cannot be installed, and PROMPTOOLS_E2E asks for it: {error}")
        pytest.skip(f"Ollama cannot be installed: {error}")


SETTINGS = {"OLLAMA_MAX_LOADED_MODELS": "9", "OLLAMA_KEEP_ALIVE": "30m"}


def start(folder: Path, **keys: Any) -> Server:
    """Start one with a model of each kind, named after it."""
    models = [ScriptedModel(kind, tuple(lines(kind)), kind) for kind in (*KINDS, "notools")]
    return serve_models(models, folder=folder, program=program(), settings=SETTINGS, **keys)


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer of the server by itself, whichever way it was asked."""

    status: int
    content: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    """Names and arguments, read from JSON where they are a string."""
    ends: str | None = None
    """`done_reason` or `finish_reason`; None where the answer ended without."""
    tokens: int = 0
    error: str | None = None


def post(http: httpx.Client, server: Server, way: Way, model: str, *said: Any, **keys: Any) -> Seen:
    """Ask the server itself; `keys` are of the body, `limit` is the most tokens to say in either shape."""
    messages = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
    limit = keys.pop("limit", None)
    body = {"model": model, "messages": messages, "stream": way.endswith("streamed"), **keys}
    if way.startswith("v1"):
        extra = {"max_tokens": limit} if limit else {}
        usage = {"stream_options": {"include_usage": True}} if body["stream"] else {}
        reply = http.post(f"{server.base_url}/chat/completions", json={**body, **usage, **extra})
    else:
        extra = {"options": {"num_predict": limit}} if limit else {}
        reply = http.post(f"{server.url}/api/chat", json={**body, **extra})
    if reply.status_code != 200:
        error = reply.json()["error"]
        return Seen(reply.status_code, error=error["message"] if isinstance(error, dict) else error)
    match way:
        case "chat":
            return _chat([reply.json()])
        case "chat streamed":
            return _chat([json.loads(line) for line in reply.text.splitlines()])
        case "v1":
            return _v1([reply.json()], "message")
        case "v1 streamed":
            data = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
            return _v1([json.loads(each) for each in data if each != "[DONE]"], "delta")


def _chat(parts: list[dict[str, Any]]) -> Seen:
    messages = [part.get("message", {}) for part in parts]
    calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    return Seen(
        200,
        "".join(message.get("content", "") for message in messages),
        "".join(message.get("thinking", "") for message in messages),
        tuple((call["name"], call["arguments"]) for call in calls),
        parts[-1].get("done_reason"),
        parts[-1].get("eval_count", 0),
        parts[-1].get("error"),
    )


def _v1(parts: list[dict[str, Any]], key: str) -> Seen:
    choices = [choice for part in parts for choice in part["choices"]]
    messages = [choice[key] for choice in choices]
    calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    return Seen(
        200,
        "".join(message.get("content") or "" for message in messages),
        "".join(message.get("reasoning") or "" for message in messages),
        tuple((call["name"], json.loads(call["arguments"])) for call in calls),
        next((choice["finish_reason"] for choice in choices if choice["finish_reason"]), None),
        (parts[-1].get("usage") or {}).get("completion_tokens", 0),
    )
