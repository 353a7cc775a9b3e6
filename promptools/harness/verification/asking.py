"""Ask a server with the OpenAI client, or with promptools' client, to get the same answers as an app would."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.errors import UpstreamError, clip, without_credentials
from promptools.masking import MIN_SECRET_LENGTH, SecretMask
from promptools.numbers import as_count
from promptools.probing.findings import Answer, AnsweredCall
from promptools.wire.chat_decoder import REASONING_FIELDS
from promptools.wire.json_body import as_list, as_object

if TYPE_CHECKING:
    import openai

_MAX_ERROR = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer, with the time that it took and the tokens that it used."""

    answer: Answer
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    attempts: tuple[str, ...] = ()
    """The mode and the outcome of each request to the server. Empty if the answer did not come through promptools."""


class Asker:
    """Asks one server, through the client of `openai` or the client of promptools.

    `keys` are added to the body of each request. `traced` must be true for the client of promptools. The replies then
    have a trace, which lists the tokens of all attempts, not only of the last one.
    """

    def __init__(self, client: openai.OpenAI, model: str, keys: Mapping[str, Any], *, traced: bool) -> None:
        self.mask = SecretMask({key for key in (client.api_key,) if len(key) >= MIN_SECRET_LENGTH})
        """Masks the client's API key in all texts that are recorded, because some servers repeat the key in their
        errors."""
        self._client = client
        self._model = model
        self._extra = {**keys, **({"promptools": {"trace": True}} if traced else {})}

    def ask(self, body: Mapping[str, Any], timeout: float) -> Asked:
        """Send a request, and return the answer, which may be an error.

        Raises `UpstreamError` if no connection to the server can be made.
        """
        import openai

        received = _Received()
        started = time.monotonic()
        try:
            create: Any = self._client.chat.completions.create  # which overload is meant is known only from `body`
            response = create(model=self._model, **body, extra_body=self._extra, timeout=timeout)
            received.read(response if body.get("stream") else (response,), streamed=bool(body.get("stream")))
        except openai.APIStatusError as error:
            received.status, received.error = error.status_code, _text_of(error)
        except openai.APIConnectionError as error:
            if not isinstance(error, openai.APITimeoutError) and type(error.__cause__).__name__ == "ConnectError":
                raise UpstreamError(f"the server does not answer any more: {_text_of(error)}") from error
            received.status, received.error = None, f"{type(error).__name__}: {_text_of(error)}"
        except Exception as error:  # noqa: BLE001 - what the SDK raises for a body that it cannot read is of any class
            received.error = f"the client raised {type(error).__name__}: {_text_of(error)}"
        return received.asked(time.monotonic() - started)


@dataclass(slots=True)
class _Received:
    """A reply that is assembled from its chunks, in the way an app would assemble it."""

    status: int | None = 200
    error: str | None = None
    content: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    choices: int = 0
    calls: dict[Any, AnsweredCall] = field(default_factory=dict[Any, AnsweredCall])
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    attempts: list[Any] = field(default_factory=list[Any])

    def read(self, parts: Iterable[Any], *, streamed: bool) -> None:
        """Read the chunks of a stream; a completion that is not streamed is read as a single chunk."""
        for part in parts:
            data: dict[str, Any] = part.model_dump(warnings=False)
            self.usage = as_object(data.get("usage")) or self.usage
            trace = as_object(data.get("promptools"))
            self.attempts = as_list(as_object(trace.get("trace", trace)).get("attempts")) or self.attempts
            for choice in as_list(data.get("choices"))[:1]:
                self.choices = 1
                self._add(as_object(choice), "delta" if streamed else "message")
        if not self.choices:
            self.error = "the response has no choices"
        elif self.finish_reason is None:
            self.error = "the stream ended without a finish_reason" if streamed else "the reply has no finish_reason"

    def _add(self, choice: dict[str, Any], key: str) -> None:
        message = as_object(choice.get(key))
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.content += str(message.get("content") or "")
        self.reasoning += next((str(message[name]) for name in REASONING_FIELDS if message.get(name)), "")
        for position, call in enumerate(as_list(message.get("tool_calls"))):
            function = as_object(call.get("function"))
            known = self.calls.setdefault(call.get("index") if key == "delta" else position, AnsweredCall())
            known.name = known.name or str(function.get("name") or "")
            arguments = function.get("arguments")
            if arguments is not None and not isinstance(arguments, str):
                self.error = f"the arguments of a call are not text, but {type(arguments).__name__}"
            known.arguments += str(arguments or "")
            known.pieces += 1

    def asked(self, seconds: float) -> Asked:
        """Return the reply as an answer. The token counts of all attempts are added up; an unknown count is 0."""
        answer = Answer(
            self.status,
            self.content,
            self.reasoning,
            calls=tuple(self.calls.values()),
            choices=self.choices,
            finish_reason=self.finish_reason,
            usage=self.usage or None,
            error=self.error,
        )
        attempts = [as_object(attempt) for attempt in self.attempts]
        usages = [as_object(attempt.get("usage")) for attempt in attempts]
        if not any(usages):
            usages = [self.usage]
        prompt, completion = (
            sum(as_count(usage.get(key)) or 0 for usage in usages) for key in ("prompt_tokens", "completion_tokens")
        )
        tried = tuple(f"{attempt.get('mode')}: {attempt.get('outcome')}" for attempt in attempts)
        return Asked(answer, seconds, prompt, completion, tried)


def _text_of(error: Exception) -> str:
    return clip(without_credentials(" ".join(str(error).split())), _MAX_ERROR)


def shown(answer: Answer) -> str:
    """Return an answer as text for people: the error, or the text and the calls."""
    if answer.failed:
        return answer.describe_error()
    thought = [f"(reasoning) {answer.reasoning}"] if answer.reasoning and not answer.content else []
    text = [answer.content] if answer.content else []
    calls = [f"call: {call.name}({call.arguments})" for call in answer.calls]
    return "\n".join([*thought, *text, *calls]) or "(an empty answer)"
