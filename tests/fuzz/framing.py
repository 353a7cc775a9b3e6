"""What servers do around a model's words: odd fields, loose JSON, odd framing of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

from fuzz.mutations import ODD

ODD_VALUES: tuple[Any, ...] = (None, 0, -1, 1.5, True, "", "x", [], {}, [None], {"a": None}, [[]], "9" * 40, 10**20)
ODD_KEYS = ("usage", "logprobs", "refusal", "audio", "annotations", "function_call", "id", "created", "x_new", "index",
            "stop_reason", "matched_stop", "prompt_logprobs", "timings", "error", "object")  # fmt: skip
HOLDS_WORDS = frozenset(("choices", "message", "delta", "content", "reasoning_content", "reasoning"))
"""Keys on the way to what the model said: where one of them is odd, its words may be gone."""
ODD_EVENTS = ("data: {}", "data: null", "data: []", "data: 3", "data: {", "data:", 'data: {"choices": []}', "junk",
              'data: {"choices": null}', "data: [DONE]", 'data: {"error": null}', 'data: {"choices": [null]}',
              "event: error\ndata: x")  # fmt: skip


def odd_fields(random: Random, tree: dict[str, Any]) -> tuple[bool, list[str]]:
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
            where[key] = deepcopy(random.choice(ODD_VALUES))
        else:
            where[key] = deepcopy(random.choice(ODD_VALUES))
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
    return [line.replace("\n", "\r\n") for line in lines]


def no_space(random: Random, lines: list[str]) -> list[str]:
    """Leave out the space behind the colon."""
    return [line.replace("data: ", "data:", 1) for line in lines]


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
    at = random.randrange(len(lines) + 1)
    return [*lines[:at], random.choice(ODD_EVENTS) + "\n\n", *lines[at:]]


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
