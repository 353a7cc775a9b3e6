"""Chat Completions as servers really send it: whole replies, stream chunks and error bodies become `Delta`s.

A unary reply becomes the same deltas as a stream, so everything above reads one shape. Nothing here judges: what is
missing is empty, what is sloppy is straightened, and no body, however odd, raises.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from promptools.wire.decode import shallow
from promptools.wire.shapes import as_count, as_int, as_list, as_object, as_text, as_time, is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""What servers call thoughts: llama.cpp, SGLang and old vLLM the first; vLLM >= 0.16 the second; Ollama the third."""


@dataclass(frozen=True, slots=True)
class UpstreamProblem:
    """An error body, whatever its shape. `message` is whole: it may hold the model's own text."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None
    body: Any = None
    prompt_tokens: int | None = None
    """Of a prompt that is longer than the context; older llama.cpp has the numbers beside its words alone."""
    context_tokens: int | None = None

    @property
    def status(self) -> int | None:
        """Give the HTTP status that the body itself claims; a server may send it under HTTP 200."""
        return self.code if isinstance(self.code, int) and 400 <= self.code <= 599 else None


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """A piece of one structured call, as loose as servers make it: any of index, id and name may be missing."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """What one message or chunk adds to one choice; `index` is None for what belongs to no choice (usage, error).

    Within a delta, reasoning comes before content, and content before calls. A `usage` replaces an earlier one of the
    same send (vLLM's `continuous_usage_stats` sends running totals).
    """

    index: int | None = 0
    content: str = ""
    ids: tuple[int, ...] | None = None
    """The tokens of `content`, where the server told them: it may tell them sooner than the text."""
    reasoning: str = ""
    tool_calls: tuple[ToolDelta, ...] = ()
    refusal: str = ""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: UpstreamProblem | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """What stands around the choices and goes on to the client as it came: id, model, time, fingerprint."""

    id: str = ""
    model: str = ""
    created: int = 0
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """`system_fingerprint`, `service_tier` and whatever else the server put beside them (`timings`, ...)."""


def read_envelope(body: Any) -> Envelope:
    """Take what stands around the choices of a reply or of a stream's first chunk."""
    data = as_object(body)
    return Envelope(
        id=as_text(data.get("id")),
        model=as_text(data.get("model")),
        created=as_time(data.get("created")),
        extra={key: value for key, value in data.items() if key not in _OWN and shallow(value)},
    )


_OWN = frozenset({"id", "object", "created", "model", "choices", "usage", "error"})


def read_reply(body: Any) -> list[Delta]:
    """Read a whole reply: one delta a choice, then one for the usage; an error body gives one delta with `error`."""
    return _read(body, "message")


def read_chunk(body: Any) -> list[Delta]:
    """Read one chunk of a stream: one delta a choice, then one for the usage; errors as in `read_reply`."""
    return _read(body, "delta")


def _read(body: Any, key: str) -> list[Delta]:
    problem = error_of(body)
    if problem is not None:
        return [Delta(index=None, error=problem)]
    data = as_object(body)
    choices = as_list(data.get("choices"))
    deltas = [_choice(as_object(choice), position, key) for position, choice in enumerate(choices)]
    usage = data.get("usage")
    if is_object(usage) and shallow(usage):
        deltas.append(Delta(index=None, usage=usage))
    return deltas


def _choice(choice: Mapping[str, Any], position: int, key: str) -> Delta:
    index = as_int(choice.get("index"))
    index = position if index is None else index
    if is_error(choice.get("error")):  # OpenRouter: an error inside a choice, with finish_reason "error"
        return Delta(index=index, error=error_of({"error": choice["error"]}))
    # a chunk may carry a whole message, and a whole reply a delta: seen behind proxies that convert one to the other
    said = as_object(choice.get(key) or choice.get("message") or choice.get("delta"))
    content, thought = _content(said.get("content"))
    stop = choice.get("stop_reason")
    return Delta(
        index=index,
        content=content or as_text(choice.get("text")),  # /v1/completions
        ids=_ids(choice.get("token_ids")),
        reasoning=reasoning_of(said) or thought,
        tool_calls=calls_of(said),
        refusal=as_text(said.get("refusal")),
        finish_reason=as_text(choice.get("finish_reason")) or None,
        stop_reason=stop if isinstance(stop, (str, int)) else None,
        logprobs=logprobs if is_object(logprobs := choice.get("logprobs")) and shallow(logprobs) else None,
    )


def _ids(given: Any) -> tuple[int, ...] | None:
    """Give the ids of vLLM's `return_token_ids`."""
    ids = [as_int(each) for each in given] if is_list(given) else [None]
    return tuple(each for each in ids if each is not None) if None not in ids else None


def _content(content: Any) -> tuple[str, str]:
    """Give text and thoughts of `content`: a string, or parts (Mistral puts its thoughts among them)."""
    if isinstance(content, str):
        return content, ""
    words: list[str] = []
    thoughts: list[str] = []
    for part in as_list(content):
        data = as_object(part)
        if data.get("type") == "thinking":
            inner = data.get("thinking")
            thoughts.append(inner if isinstance(inner, str) else _content(inner)[0])
        else:
            words.append(part if isinstance(part, str) else as_text(data.get("text")))
    return "".join(words), "".join(thoughts)


def reasoning_of(said: Mapping[str, Any]) -> str:
    """Give the thoughts of a message; servers that send two fields repeat themselves."""
    return next((said[name] for name in REASONING_FIELDS if isinstance(said.get(name), str) and said[name]), "")


def calls_of(said: Mapping[str, Any]) -> tuple[ToolDelta, ...]:
    """Give the structured calls of a message, pieces or whole."""
    calls = tuple(_call(as_object(call)) for call in as_list(said.get("tool_calls")) if is_object(call))
    legacy = said.get("function_call")
    if calls or not is_object(legacy):  # llama-cpp-python sends both: the newer field counts
        return calls
    return (_call({"index": 0, "function": legacy}),)


def _call(call: Mapping[str, Any]) -> ToolDelta:
    # some servers put name and arguments beside the id instead of under "function"
    function = as_object(call.get("function")) or call
    index = call.get("index", function.get("index"))  # Ollama's /api/chat: the index is inside the function
    return ToolDelta(
        index=_place(index),
        id=as_text(call.get("id")) or None,
        name=as_text(function.get("name")) or None,
        arguments=_arguments(function.get("arguments")),
    )


def _place(index: Any) -> int | None:
    """Return the place of a call; some servers write it as a string."""
    if isinstance(index, str):
        return int(index) if index.isdecimal() and len(index) < _DIGITS else None
    return as_int(index)


_DIGITS = 10
"""More of them are no place."""


def _arguments(arguments: Any) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else _written(arguments)


def _written(value: Any) -> str:
    """Write JSON again; empty for what is nested too deeply for that."""
    return json.dumps(value, ensure_ascii=False) if shallow(value) else ""


def error_of(body: Any) -> UpstreamProblem | None:
    """Find the error in a body, whatever status it came under; None when it is a reply or nothing of the kind.

    `body` is decoded JSON, or text that is no JSON at all (a proxy's HTML, `Internal Server Error`).
    """
    if isinstance(body, str):
        return _error_text(body, body)
    if is_list(body):  # Google's front ends wrap the error object into a list
        return error_of(body[0]) if body else None
    data = as_object(body)
    if is_error(data.get("error")):
        return _error_value(data["error"], data)
    if data.get("choices") is not None:
        return None
    if data.get("object") == "error" or "message" in data:  # vLLM before 0.10; {"code": 400, "message": ...} under 200
        return _error_value(data, data)
    if data.get("detail"):  # FastAPI: transformers serve
        detail = data["detail"]
        return UpstreamProblem(detail if isinstance(detail, str) else _written(detail), body=body)
    # Ollama 0.11.3 put the text into the key: {"error parsing tool call": "invalid character ..."}
    odd = next((key for key in data if key.startswith("error ")), None)
    return None if odd is None else UpstreamProblem(f"{odd}: {as_text(data[odd])}", body=body)


def is_error(value: Any) -> bool:
    """Whether the value of an `error` key tells of an error: some servers send one with nothing in it."""
    return any(value.values()) if is_object(value) else bool(value)


def _error_value(error: Any, body: Any) -> UpstreamProblem:
    if not is_object(error):
        return _error_text(error if isinstance(error, str) else _written(error), body)
    code = error.get("code")
    return UpstreamProblem(
        message=as_text(error.get("message")) or _written(error),
        type=as_text(error.get("type")) or None,
        param=as_text(error.get("param")) or None,
        code=code if isinstance(code, (str, int)) else None,
        body=body,
        prompt_tokens=as_count(error.get("n_prompt_tokens")),
        context_tokens=as_count(error.get("n_ctx")),
    )


def _error_text(text: str, body: Any) -> UpstreamProblem:
    """Read an error given as text; Ollama passes its runner's JSON error on inside a string."""
    if text.lstrip().startswith("{"):
        try:
            inner = json.loads(text)
        except (ValueError, RecursionError):
            inner = None
        found = error_of(inner) if is_object(inner) else None
        if found is not None:
            return replace(found, body=body)
    return UpstreamProblem(text, body=body)
