"""Damage to a reply, by its pieces: markers, names, keys, strings, brackets, quotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from fuzz.arguments import examples, markers
from fuzz.inputs import Damage

PIECE = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?[A-Za-z_][^<>\n]{0,60}>|\[/?[A-Z_]{2,}\]|`{3,}\w*|\w+|\s+|.",
    re.DOTALL,
)
QUOTES = ('"', "'")
CLOSERS = ("}", "]", ")")
PUNCTUATION = (*QUOTES, *CLOSERS, "{", "[", "(", ",", ":", ";", "=", ">", "<", "/", "|", "\\", "`")
ODD = (
    "\x00",
    "\x1b",
    "\x08",
    "\u200b",
    "\ufeff",
    "\ud83d",
    "\udc00",
    "\u2028",
    "\x85",
    "\xa0",
    "\r",
    "\t",
    "\x7f",
    "’",
)
NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "01", "0x1F", "1_000", "+1", ".5", "5.", "9" * 5000, "None", "True")
KEYS = ("name", "tool", "function", "arguments", "parameters", "args", "input", "id", "type", "tool_call_id")
WRAPS = (
    ("<think>", "</think>"), ("<think>", ""), ("", "</think>"), ("```\n", "\n```"), ("```json\n", "\n```"), ("`", "`"),
    ("<tool_call>", "</tool_call>"), ("[", "]"), ("{", "}"), ("(", ")"), ('"', '"'), ("<tools>", "</tools>"),
    ("<|channel|>analysis<|message|>", "<|end|>"), ("<tool_response>", "</tool_response>"), ("/*", "*/"), ("    ", ""),
    ("<|channel|>final<|message|>", ""), ("Example:\n", "\nend."), ("<!-- ", " -->"), ("$", "$"), ("*", "*"),
)  # fmt: skip
ROOM = 40_000
"""Characters beyond which nothing is repeated or spliced in."""

Mutation: TypeAlias = Callable[[Random, list[str]], list[str]]


def mutate(random: Random, text: str) -> tuple[str, Damage, tuple[str, ...]]:
    """Return the text after some mutations, how bad they are, and their names."""
    done: list[str] = []
    local = True
    for _ in range(random.choice((1, 1, 1, 1, 2, 2, 3, 5))):
        mutation = random.choice(LOCAL if random.random() < 0.45 else ANY)
        pieces = PIECE.findall(text)
        if not pieces:
            break
        text = "".join(mutation(random, pieces))
        done.append(mutation.__name__)
        local = local and mutation in LOCAL
    return text, "local" if local else "any", tuple(done)


def _place(random: Random, pieces: list[str], wanted: Callable[[str], bool]) -> int | None:
    places = [at for at, piece in enumerate(pieces) if wanted(piece)]
    return random.choice(places) if places else None


# --- local damage ----------------------------------------------------------------------------------------------------


def drop_quote(random: Random, pieces: list[str]) -> list[str]:
    """Lose a quote."""
    return _dropped(pieces, _place(random, pieces, QUOTES.__contains__))


def drop_closer(random: Random, pieces: list[str]) -> list[str]:
    """Lose a closing bracket."""
    return _dropped(pieces, _place(random, pieces, CLOSERS.__contains__))


def drop_punctuation(random: Random, pieces: list[str]) -> list[str]:
    """Lose a character of punctuation."""
    return _dropped(pieces, _place(random, pieces, PUNCTUATION.__contains__))


def drop_closing_tag(random: Random, pieces: list[str]) -> list[str]:
    """Lose a closing tag, or a special token."""
    return _dropped(pieces, _place(random, pieces, lambda piece: piece.startswith(("</", "<|", "<｜"))))


def insert_punctuation(random: Random, pieces: list[str]) -> list[str]:
    """Strew in a character of punctuation."""
    return _inserted(random, pieces, random.choice(PUNCTUATION))


def insert_odd(random: Random, pieces: list[str]) -> list[str]:
    """Strew in a control character, half a surrogate pair, and their like."""
    return _inserted(random, pieces, random.choice(ODD))


def insert_space(random: Random, pieces: list[str]) -> list[str]:
    """Strew in white space."""
    return _inserted(random, pieces, random.choice((" ", "\n", "\n\n", "\t", " " * 20, "\r\n")))


def requote(random: Random, pieces: list[str]) -> list[str]:
    """Write every double quote another way, or one of them."""
    instead = random.choice(("'", "“", "`", '""', "&quot;", '\\"'))
    if random.random() < 0.5:
        return [instead if piece == '"' else piece for piece in pieces]
    at = _place(random, pieces, '"'.__eq__)
    return pieces if at is None else [*pieces[:at], instead, *pieces[at + 1 :]]


def drop_character(random: Random, pieces: list[str]) -> list[str]:
    """Lose any character."""
    at = random.randrange(len(pieces))
    inside = random.randrange(len(pieces[at]))
    return [*pieces[:at], pieces[at][:inside] + pieces[at][inside + 1 :], *pieces[at + 1 :]]


def cut(random: Random, pieces: list[str]) -> list[str]:
    """Lose the end."""
    text = "".join(pieces)
    return [text[: random.randrange(len(text))]]


# --- damage of any kind ----------------------------------------------------------------------------------------------


def drop(random: Random, pieces: list[str]) -> list[str]:
    """Lose a run of pieces."""
    at = random.randrange(len(pieces))
    return pieces[:at] + pieces[at + random.choice((1, 1, 1, 2, 4, 10)) :]


def duplicate(random: Random, pieces: list[str]) -> list[str]:
    """Write a run of pieces twice."""
    at = random.randrange(len(pieces))
    end = at + random.choice((1, 1, 2, 5, 20))
    return pieces[:end] + pieces[at:]


def swap(random: Random, pieces: list[str]) -> list[str]:
    """Exchange two pieces."""
    one, other = random.randrange(len(pieces)), random.randrange(len(pieces))
    pieces = list(pieces)
    pieces[one], pieces[other] = pieces[other], pieces[one]
    return pieces


def insert_marker(random: Random, pieces: list[str]) -> list[str]:
    """Strew in a marker of any dialect."""
    return _inserted(random, pieces, random.choice(markers()))


def replace_marker(random: Random, pieces: list[str]) -> list[str]:
    """Put another dialect's marker in the place of one."""
    at = _place(random, pieces, lambda piece: len(piece) > 2 and piece[0] in "<[`")
    return pieces if at is None else [*pieces[:at], random.choice(markers()), *pieces[at + 1 :]]


def insert_call(random: Random, pieces: list[str]) -> list[str]:
    """Put a call of any dialect somewhere: beside another one, or inside it."""
    return _inserted(random, pieces, random.choice(examples()))


def splice(random: Random, pieces: list[str]) -> list[str]:
    """Go on as another dialect would, from the middle of one of its calls."""
    other = random.choice(examples())
    return [*pieces[: random.randrange(len(pieces) + 1)], other[random.randrange(len(other)) :]]


def repeat(random: Random, pieces: list[str]) -> list[str]:
    """Write a run of pieces many times."""
    at = random.randrange(len(pieces))
    unit = "".join(pieces[at : at + random.choice((1, 2, 5, 30))])
    times = min(random.choice((3, 30, 300)), max(1, ROOM // max(1, len(unit))))
    return [*pieces[:at], unit * times, *pieces[at:]]


def wrap(random: Random, pieces: list[str]) -> list[str]:
    """Put the whole, or a part, into a fence, a thought, a tag."""
    opener, closer = random.choice(WRAPS)
    start = 0 if random.random() < 0.5 else random.randrange(len(pieces))
    end = len(pieces) if random.random() < 0.5 else random.randrange(start, len(pieces)) + 1
    return [*pieces[:start], opener, *pieces[start:end], closer, *pieces[end:]]


def block_quote(random: Random, pieces: list[str]) -> list[str]:
    """Put a sign before each line."""
    sign = random.choice(("> ", ">", "    ", "+", "- ", "# ", "| "))
    return [sign, *"".join(pieces).replace("\n", "\n" + sign)]


def rename(random: Random, pieces: list[str]) -> list[str]:
    """Write another word in the place of one."""
    at = _place(random, pieces, str.isidentifier)
    instead = random.choice((*KEYS, "nope", pieces[at].upper(), pieces[at] * 2)) if at is not None else ""
    return pieces if at is None else [*pieces[:at], instead, *pieces[at + 1 :]]


def odd_number(random: Random, pieces: list[str]) -> list[str]:
    """Write what is not a JSON number in the place of a number, or of a word."""
    at = _place(random, pieces, str.isdigit)
    if at is None:
        at = random.randrange(len(pieces))
    return [*pieces[:at], random.choice(NUMBERS), *pieces[at + 1 :]]


def twice(random: Random, pieces: list[str]) -> list[str]:
    """Say it all again."""
    return [*pieces, random.choice(("", "\n", "\n\n", " and ")), *pieces] if len(pieces) < ROOM // 8 else pieces


def upper(random: Random, pieces: list[str]) -> list[str]:
    """Write a marker in capitals, or with a space inside."""
    at = _place(random, pieces, lambda piece: len(piece) > 2 and piece[0] in "<[")
    if at is None:
        return pieces
    odd = random.choice((pieces[at].swapcase(), pieces[at][:-1] + " " + pieces[at][-1], pieces[at].strip("<>|")))
    return [*pieces[:at], odd, *pieces[at + 1 :]]


def _dropped(pieces: list[str], at: int | None) -> list[str]:
    return pieces if at is None else pieces[:at] + pieces[at + 1 :]


def _inserted(random: Random, pieces: list[str], new: str) -> list[str]:
    at = random.randrange(len(pieces) + 1)
    return [*pieces[:at], new, *pieces[at:]]


LOCAL: tuple[Mutation, ...] = (
    drop_quote, drop_quote, drop_closer, drop_punctuation, drop_closing_tag, insert_punctuation, insert_odd,
    insert_space, requote, drop_character, cut,
)  # fmt: skip
ANY: tuple[Mutation, ...] = (
    drop, duplicate, swap, insert_marker, replace_marker, insert_call, splice, repeat, wrap, block_quote, rename,
    odd_number, twice, upper,
)  # fmt: skip
