"""The APIs of the proxy as their SDKs read them: each answer becomes an `Outcome`, or an error of the SDK."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import ollama
import openai
import pytest

from promptools.transport.endpoints import PROXY_ENDPOINTS, find_endpoint

anthropic = pytest.importorskip("anthropic")  # not in the environments of openai's majors

KEY = "client-key-0123456789"
TIMEOUT = 300
ERRORS = (openai.OpenAIError, anthropic.AnthropicError, ollama.ResponseError)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@dataclass
class Outcome:
    """What the app got."""

    text: str = ""
    calls: list = field(default_factory=list)
    cut: bool = False
    """Whether the answer says that it was cut off."""
    error: Exception | None = None

    @property
    def failed_well(self):
        """Whether it got an error in the API's own form, and not a broken connection or a time-out."""
        if isinstance(self.error, ollama.ResponseError):
            return bool(self.error.error)
        broken = (openai.APIConnectionError, anthropic.APIConnectionError)
        if not isinstance(self.error, (openai.APIError, anthropic.APIError)) or isinstance(self.error, broken):
            return False
        body = self.error.body
        inner = body.get("error", body) if isinstance(body, dict) else {}
        return bool(isinstance(inner, dict) and inner.get("message"))


def tool_names(count):
    return ["get_weather", *(f"tool_{number}" for number in range(1, count))]


class Front:
    """One API; `ask` returns what its SDK made of the answer."""

    model = "m"
    question = "Weather in Paris?"

    @property
    def messages(self):
        return [{"role": "user", "content": self.question}]

    def close(self):
        self.client.close()


class Chat(Front):
    def __init__(self, port):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0, timeout=TIMEOUT)

    def ask(self, *, stream, tools=1):
        body = {"model": self.model, "messages": self.messages}
        if tools:
            body["tools"] = [
                {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in tool_names(tools)
            ]
        outcome = Outcome()
        try:
            if stream:
                self._stream(body, outcome)
            else:
                choice = self.client.chat.completions.create(**body).choices[0]
                message, outcome.cut = choice.message, choice.finish_reason == "length"
                outcome.text = message.content or ""
                outcome.calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or ()]
        except ERRORS as error:
            outcome.error = error
        return outcome

    def _stream(self, body, outcome):
        calls, finished = {}, False
        with self.client.chat.completions.create(**body, stream=True) as stream:
            for chunk in stream:
                for choice in chunk.choices:
                    outcome.text += choice.delta.content or ""
                    for call in choice.delta.tool_calls or ():
                        slot = calls.setdefault(call.index, ["", ""])
                        slot[0] += call.function.name or ""
                        slot[1] += call.function.arguments or ""
                    finished = finished or choice.finish_reason is not None
                    outcome.cut = outcome.cut or choice.finish_reason == "length"
        assert finished, "the stream ended without a finish reason"
        outcome.calls = [tuple(call) for call in calls.values()]


class Responses(Front):
    def __init__(self, port):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0, timeout=TIMEOUT)

    def ask(self, *, stream, tools=1):
        body = {"model": self.model, "input": self.question}
        if tools:
            body["tools"] = [{"type": "function", "name": name, "parameters": SCHEMA} for name in tool_names(tools)]
        outcome = Outcome()
        try:
            response = self._final(body) if stream else self.client.responses.create(**body)
            if response.error is not None:
                body = {"message": response.error.message, "code": response.error.code}
                raise openai.APIError(response.error.message, request=None, body=body)
            outcome.cut = response.status == "incomplete"
            assert outcome.cut or response.status == "completed", response.status
            outcome.text = response.output_text
            outcome.calls = [(item.name, item.arguments) for item in response.output if item.type == "function_call"]
        except ERRORS as error:
            outcome.error = error
        return outcome

    def _final(self, body):
        numbers, final = [], None
        with self.client.responses.create(**body, stream=True) as stream:
            for event in stream:
                numbers.append(event.sequence_number)
                if event.type in {"response.completed", "response.failed", "response.incomplete"}:
                    final = event.response
        assert numbers == [*range(len(numbers))]
        assert final is not None, "the stream ended without a final event"
        return final


class Messages(Front):
    max_tokens = 100

    def __init__(self, port):
        self.client = anthropic.Anthropic(
            base_url=f"http://127.0.0.1:{port}", api_key=KEY, max_retries=0, timeout=TIMEOUT
        )

    def ask(self, *, stream, tools=1):
        body = {"model": self.model, "messages": self.messages, "max_tokens": self.max_tokens}
        if tools:
            body["tools"] = [{"name": name, "input_schema": SCHEMA} for name in tool_names(tools)]
        outcome = Outcome()
        try:
            if stream:
                stopped = False
                with self.client.messages.stream(**body) as events:
                    for event in events:
                        stopped = stopped or event.type == "message_stop"
                    message = events.get_final_message()
                assert stopped, "the stream ended without its last event"
            else:
                message = self.client.messages.create(**body)
            outcome.cut = message.stop_reason == "max_tokens"
            outcome.text = "".join(block.text for block in message.content if block.type == "text")
            outcome.calls = [(b.name, json.dumps(b.input)) for b in message.content if b.type == "tool_use"]
        except ERRORS as error:
            outcome.error = error
        return outcome


class Ollama(Front):
    def __init__(self, port):
        headers = {"Authorization": f"Bearer {KEY}"}
        self.client = ollama.Client(f"http://127.0.0.1:{port}", headers=headers, timeout=TIMEOUT)

    def ask(self, *, stream, tools=1):
        body = {"model": self.model, "messages": self.messages}
        if tools:
            body["tools"] = [
                {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in tool_names(tools)
            ]
        outcome = Outcome()
        try:
            parts = list(self.client.chat(**body, stream=True)) if stream else [self.client.chat(**body)]
        except ERRORS as error:
            outcome.error = error
            return outcome
        assert parts[-1].done, "the stream ended without its last line"
        outcome.cut = parts[-1].done_reason == "length"
        outcome.text = "".join(part.message.content or "" for part in parts)
        calls = (call.function for part in parts for call in part.message.tool_calls or ())
        outcome.calls = [(call.name, json.dumps(dict(call.arguments))) for call in calls]
        return outcome


FRONTS = {"chat": Chat, "responses": Responses, "messages": Messages}
if find_endpoint(PROXY_ENDPOINTS, "POST", "/api/chat", "localhost") is not None:
    FRONTS["ollama"] = Ollama
