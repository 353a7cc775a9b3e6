r"""The integer that an answer gives: in its last `\boxed{}`, or the last one of its text."""

from __future__ import annotations

import re

BOX = re.compile(r"(?:boxed|framebox)\s*\{")
NUMBER = re.compile(r"((?:(?<![0-9A-Za-z)}\]])[-−])?[0-9](?:[0-9]|,(?=[0-9]{3}(?![0-9])))*)(?:\.([0-9]+))?")
GROUPING = re.compile(r"(?<=[0-9])(?:\{,\}|\\,|\\!|~)+(?=[0-9]{3}(?![0-9]))")
r"""What LaTeX writes between groups of digits: `1{,}024`, `1\,024`."""
MAX_DIGITS = 1000


def boxed_integer(text: str) -> int | None:
    r"""Return the last number in the last `\boxed{}` or `\framebox{}`, or else the last one anywhere.

    None if there is none, or if it is no integer. A box that is not closed was cut off, and does not count as one.
    """
    content = _last_box(text)
    number = _last_number(content) if content else None
    number = number or _last_number(text)
    if number is None or (number[2] or "").strip("0") or len(number[1]) > MAX_DIGITS:
        return None
    return int(number[1].replace(",", "").replace("−", "-"))


def _last_number(text: str) -> re.Match[str] | None:
    last = None
    for last in NUMBER.finditer(GROUPING.sub("", text)):  # noqa: B007 only the last one counts
        pass
    return last


def _last_box(text: str) -> str | None:
    """Return what is in the last box that is closed."""
    starts = {match.end() for match in BOX.finditer(text)}
    open_braces: list[int] = []
    last = None
    for match in re.finditer(r"\\[{}]|[{}]", text):
        if match[0] == "{":
            open_braces.append(match.end())
        elif match[0] == "}" and open_braces:
            start = open_braces.pop()
            if start in starts and (last is None or start > last[0]):
                last = start, match.start()
    return None if last is None else text[last[0] : last[1]]
