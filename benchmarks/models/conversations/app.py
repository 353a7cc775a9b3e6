"""The loop that an app writes around the `openai` client: requests and results of tools, until an answer or a limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx2
import openai

import promptools
from benchmarks.models.ask import MOST_TOKENS, Way, extra_body
from benchmarks.models.conversations.conversation import Conversation, Turn
from benchmarks.models.conversations.kept_answers import KeptAnswers
from benchmarks.models.conversations.simulated import SimulatedTools
from benchmarks.models.conversations.transcript import Said, Transcript, TurnHeld
from promptools.profiles.config import Config

ADDRESS = "http://127.0.0.1:8080/v1"
"""The address that clients get. Only the transport knows where the server is."""
STOPPED = "Stopped after too many steps."
"""The text in the history in place of an answer that did not come."""
ECHO_WORDS = 3
"""Answers of fewer words may be in the prompt by chance."""


@contextmanager
def client_of(way: Way, transport: httpx2.BaseTransport) -> Iterator[openai.OpenAI]:
    """Open the client for a way of asking, which sends its requests through `transport`."""
    with httpx2.Client(transport=transport, timeout=None) as http:
        keys: dict[str, Any] = {"base_url": ADDRESS, "api_key": "none", "max_retries": 0, "http_client": http}
        yield openai.OpenAI(**keys) if way.options is None else promptools.OpenAI(**keys, config=Config())


class App:
    """One conversation with a model: `history` are the messages so far."""

    def __init__(
        self, client: openai.OpenAI, transport: KeptAnswers, model: str, conversation: Conversation, way: Way
    ) -> None:
        self.history: list[Any] = conversation.opening()
        self.modes: set[str] = set()
        self._client = client
        self._transport = transport
        self._model = model
        self._way = way
        self._tools: Any = conversation.offered()
        self._simulated = SimulatedTools(conversation)
        # the app makes the ids: random ids would make the bodies of two runs differ, and Mistral requires nine
        # characters
        self._ids = (f"call{number:05}" for number in count(1))

    def turn(self, turn: Turn) -> TurnHeld:
        """Send the user's message, and go on until the answer, an error, or the last reply allowed in the turn."""
        self.history.append({"role": "user", "content": turn.user})
        replies: list[Said] = []
        error = ""
        try:
            while len(replies) < turn.most and not (replies and not replies[-1].calls):
                replies.append(self._reply())
        except openai.APIError as raised:
            error = str(raised)[:300]
        held = TurnHeld(replies, error)
        if held.final is None:
            self.history.append({"role": "assistant", "content": STOPPED})
        return held

    def _reply(self) -> Said:
        reply = self._client.chat.completions.create(
            model=self._model,
            messages=self.history,
            tools=self._tools,
            temperature=0,
            max_tokens=MOST_TOKENS,
            **extra_body(self._way),
        )
        trace = (reply.model_extra or {}).get("promptools", {})
        self.modes |= {attempt["mode"] for attempt in trace.get("attempts", [])}
        message: Any = reply.choices[0].message
        content = message.content or ""
        calls = [call.function for call in message.tool_calls or []]
        said = Said(
            [{"name": call.name, "arguments": _value(call.arguments)} for call in calls],
            content,
            printed=bool(content and promptools.parse(content, self._tools).calls),
            echoed=self._is_echo(content),
        )
        ids = [next(self._ids) for _ in calls]
        self.history.append(_assistant(content, calls, ids))
        for call_id, call in zip(ids, calls, strict=True):
            result = self._simulated.result(call.name, call.arguments)
            self.history.append({"role": "tool", "tool_call_id": call_id, "content": result})
        return said

    def _is_echo(self, content: str) -> bool:
        """Whether an answer is a piece of the prompt that is not in the conversation."""
        words = _plain(content)
        if words.count(" ") + 1 < ECHO_WORDS or any(words in _plain(each["content"]) for each in self.history):
            return False
        return words in _plain(self._transport.sent[-1].prompt)


def hold(
    transport: KeptAnswers, conversation: Conversation, way: Way, *, served: str, model: str, words: str
) -> Transcript:
    """Hold a conversation at temperature 0 with the model that the server calls `served`.

    If a turn does not end, or ends in an error, the history gets `STOPPED` as its answer, and the next turn follows.
    Each conversation has a new client, because what a client remembers of failures must not depend on earlier
    conversations.
    """
    transport.sent.clear()
    with client_of(way, transport) as client:
        app = App(client, transport, served, conversation, way)
        turns = [app.turn(turn) for turn in conversation.turns]
    sent = [each for each in transport.sent if each.generates]
    return Transcript(
        model=model,
        way=way.name,
        words=words,
        conversation=conversation.name,
        digest=conversation.digest,
        turns=turns,
        modes=sorted(app.modes),
        requests=len(sent),
        prompt_tokens=sent[0].read_tokens if sent else 0,
        read_tokens=sum(each.read_tokens for each in sent),
        written_tokens=sum(each.written_tokens for each in sent),
        seconds=round(sum(each.seconds for each in transport.sent), 2),
    )


def _assistant(content: str, calls: list[Any], ids: list[str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call_id, call in zip(ids, calls, strict=True)
        ]
    return message


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _plain(text: str) -> str:
    return " ".join(text.split())
