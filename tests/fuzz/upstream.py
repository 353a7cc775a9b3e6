"""Random answers of a server, whole and streamed: odd fields, loose JSON, odd framing around a model's words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from fuzz.grammar import rendered
from fuzz.mutations import ODD, mutate
from fuzz.replies import DIALECTS

WORDS, THOUGHT = "Kolibri", "Pelikan"
"""What the model says, and thinks, whatever else: neither may be lost."""
ODD_VALUES: tuple[Any, ...] = (None, 0, -1, 1.5, True, "", "x", [], {}, [None], {"a": None}, [[]], "9" * 40, 10**20)
ODD_KEYS = ("usage", "logprobs", "refusal", "audio", "annotations", "function_call", "id", "created", "x_new", "index",
            "system_fingerprint", "stop_reason", "matched_stop", "prompt_logprobs", "timings", "error", "object")  # fmt: skip
HOLDS_WORDS = frozenset(("choices", "message", "delta", "content", "reasoning_content", "reasoning"))
"""Keys on the way to what the model said: where one of them is odd, its words may be gone."""


@dataclass(frozen=True, slots=True)
class ExchangeInput:
    """One request of a client, and what the server answers to every send."""

    body: dict[str, Any]
    answer: str
    """Half surrogates stand for bytes that are no UTF-8."""
    dialect: str
    type: str = "application/json"
    cut: int = 0
    """Bytes of a piece; 0: one piece."""
    words: tuple[str, ...] = ()
    """What must reach the client."""
    mutations: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What a report shows of it."""
        return self.answer

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ExchangeInput:
        """Read what `to_json` wrote."""
        return cls(**{**data, "words": tuple(data["words"]), "mutations": tuple(data["mutations"])})


def make(seed: str, dialect: str = "") -> ExchangeInput:
    """Return the input of a seed; the dialect is any where none is named."""
    random = Random(f"{seed} upstream {dialect}")
    dialect = dialect or random.choice(DIALECTS)
    sample = rendered(random, dialect)
    text = sample.text if random.random() < 0.5 else mutate(random, sample.text)[0]
    thought = f"{THOUGHT}." if random.random() < 0.3 else ""
    body = _request(random, sample.tools or [], stream=random.random() < 0.6)
    given = _message(random, f"{WORDS}.\n{text}", thought, sample.calls)
    mutated = _stream(random, given) if body["stream"] else _whole(random, given)
    answer, kept, mutations = mutated
    words = (WORDS, *([THOUGHT] if thought else [])) if kept else ()
    kind = "text/event-stream" if body["stream"] else "application/json"
    return ExchangeInput(body, answer, dialect, kind, random.choice((0, 0, 1, 7, 64)), words, mutations)


def _request(random: Random, tools: list[dict[str, Any]], *, stream: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"corrections": 0}
    for key, choices in (
        ("mode", ("native", "prompt")),
        ("arguments", ("live", "whole")),
        ("on_malformed", ("call", "content")),
        ("hold", ("auto", "all")),
    ):
        if random.random() < 0.5:
            options[key] = random.choice(choices)
    return {
        "model": "m",
        "messages": [{"role": "user", "content": "Weather in Paris?"}],
        "tools": [{"type": "function", "function": tool} for tool in tools],
        "stream": stream,
        "promptools": options,
    }


def _message(random: Random, text: str, thought: str, calls: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thought:
        message[random.choice(("reasoning_content", "reasoning"))] = thought
    if random.random() < 0.3:
        message["tool_calls"] = [
            {"id": f"call{at:05}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for at, (name, given) in enumerate(calls)
        ]
    return message


def _envelope(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {"id": "c1", "object": kind, "created": 1, "model": "m", "choices": [choice], "usage": usage}


def _finish(random: Random, message: dict[str, Any]) -> str:
    return "tool_calls" if "tool_calls" in message else random.choice(("stop", "stop", "length"))


def _whole(random: Random, message: dict[str, Any]) -> tuple[str, bool, tuple[str, ...]]:
    choice = {"index": 0, "message": message, "finish_reason": _finish(random, message)}
    tree = _envelope("chat.completion", choice)
    kept, done = _odd_fields(random, tree)
    text = json.dumps(tree, ensure_ascii=random.random() < 0.5)
    if random.random() < 0.25:
        damage = random.choice(WHOLE)
        text, kept, done = damage(random, text), kept and damage in HARMLESS, [*done, damage.__name__]
    return text, kept, tuple(done)


def _stream(random: Random, message: dict[str, Any]) -> tuple[str, bool, tuple[str, ...]]:
    kept, done = True, []
    lines: list[str] = []
    for delta, finish in _deltas(random, message):
        tree = _envelope("chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": finish})
        if random.random() < 0.15:
            fine, names = _odd_fields(random, tree)
            kept, done = kept and fine, [*done, *names]
        lines.append(f"data: {json.dumps(tree, ensure_ascii=False)}\n\n")
    if random.random() < 0.9:
        lines.append("data: [DONE]\n\n")
    for _ in range(random.choice((0, 0, 1, 2))):
        damage = random.choice(FRAMING)
        lines = damage(random, lines)
        kept, done = kept and damage in HARMLESS, [*done, damage.__name__]
    return "".join(lines), kept, tuple(done)


def _deltas(random: Random, message: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": random.choice(("", None))}, None
    for key in ("reasoning_content", "reasoning", "content"):
        for piece in _pieces(random, message.get(key, "")):
            yield {key: piece}, None
    for at, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": at, "function": {"name": function["name"], "arguments": ""}}]}, None
        for piece in _pieces(random, function["arguments"]):
            yield {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}, None
    yield {}, _finish(random, message)


def _pieces(random: Random, text: str) -> Iterator[str]:
    places = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(6)))
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        if start < end:
            yield text[start:end]


# --- odd fields ------------------------------------------------------------------------------------------------------


def _odd_fields(random: Random, tree: dict[str, Any]) -> tuple[bool, list[str]]:
    """Change some fields; return whether the words are still there, and what was done."""
    kept, done = True, []
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        path = random.choice(list(_paths(tree)))
        where, key = _parent(tree, path), path[-1]
        kind = random.randrange(4)
        if kind == 0:
            del where[key]
        elif kind == 1 and isinstance(where, dict):
            key = random.choice(ODD_KEYS)
            where[key] = random.choice(ODD_VALUES)
        else:
            where[key] = random.choice(ODD_VALUES)
        kept = kept and key not in HOLDS_WORDS and key != "error" and not isinstance(key, int)
        done.append(f"odd {key}")
    return kept, done


def _paths(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, each in members:
        yield (*above, key)
        yield from _paths(each, (*above, key))


def _parent(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


# --- loose JSON and odd framing --------------------------------------------------------------------------------------


def raw_breaks(random: Random, text: str) -> str:
    """Write line breaks into the JSON as they are, as some servers do."""
    return text.replace("\\n", random.choice(("\n", "\r\n", "\t")))


def byte_order_mark(random: Random, text: str) -> str:
    """Begin with a byte order mark."""
    return "\ufeff" + text


def space_around(random: Random, text: str) -> str:
    """Put white space around the JSON."""
    return "\n\n " + text + "\r\n"


def cut_body(random: Random, text: str) -> str:
    """Lose the end of the body."""
    return text[: random.randrange(len(text))]


def odd_characters(random: Random, text: str) -> str:
    """Strew in a control character, or a byte that is no UTF-8."""
    at = random.randrange(len(text))
    return text[:at] + random.choice((*ODD, "\udcff", "\udc80")) + text[at:]


def crlf(random: Random, lines: list[str]) -> list[str]:
    """End lines as Windows does."""
    return [each.replace("\n", "\r\n") for each in lines]


def no_space(random: Random, lines: list[str]) -> list[str]:
    """Leave out the space behind the colon."""
    return [each.replace("data: ", "data:", 1) for each in lines]


def comments(random: Random, lines: list[str]) -> list[str]:
    """Strew in comments, ids and names of events."""
    at = random.randrange(len(lines) + 1)
    return [
        *lines[:at],
        random.choice((": ping\n\n", "id: 3\n", "event: message\n", "retry: 10\n\n", "\n")),
        *lines[at:],
    ]


def no_end(random: Random, lines: list[str]) -> list[str]:
    """Lose the blank line behind the last event."""
    return [*lines[:-1], lines[-1].rstrip("\n")] if lines else lines


def lost_event(random: Random, lines: list[str]) -> list[str]:
    """Lose an event."""
    at = random.randrange(len(lines))
    return lines[:at] + lines[at + 1 :]


def repeated_event(random: Random, lines: list[str]) -> list[str]:
    """Send an event twice."""
    at = random.randrange(len(lines))
    return [*lines[: at + 1], *lines[at:]]


def swapped_events(random: Random, lines: list[str]) -> list[str]:
    """Send the events in another order."""
    return random.sample(lines, len(lines))


def odd_event(random: Random, lines: list[str]) -> list[str]:
    """Strew in an event that is none of Chat Completions."""
    odd = random.choice(("data: {}\n\n", "data: null\n\n", "data: []\n\n", "data: 3\n\n", "data: {\n\n", "data:\n\n",
                         'data: {"choices": []}\n\n', 'data: {"choices": null}\n\n', "data: [DONE]\n\n", "junk\n\n",
                         'data: {"error": null}\n\n', 'data: {"choices": [null]}\n\n', "event: error\ndata: x\n\n"))  # fmt: skip
    at = random.randrange(len(lines) + 1)
    return [*lines[:at], odd, *lines[at:]]


def damaged_event(random: Random, lines: list[str]) -> list[str]:
    """Damage one event's JSON."""
    at = random.randrange(len(lines))
    return [*lines[:at], random.choice(WHOLE)(random, lines[at]), *lines[at + 1 :]]


WHOLE: tuple[Callable[[Random, str], str], ...] = (raw_breaks, byte_order_mark, space_around, cut_body, odd_characters)
FRAMING: tuple[Callable[[Random, list[str]], list[str]], ...] = (
    crlf, no_space, comments, no_end, lost_event, repeated_event, swapped_events, odd_event, damaged_event,
)  # fmt: skip
HARMLESS: frozenset[Any] = frozenset((raw_breaks, space_around, crlf, no_space, comments, no_end))
"""What costs no word."""
