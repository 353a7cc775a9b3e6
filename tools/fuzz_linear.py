"""Search for text that the parser reads in more than linear time: random mixtures of everything that dialects write.

    python tools/fuzz_linear.py --seconds 60 --seed 1

A mixture is a unit of one to four tokens, repeated after a random beginning or inside a call, parsed whole or in
pieces, with random options. The tokens are from the registry of dialects (markers, closers, stop tokens, reasoning
tags, rendered calls and parts of them), and white space, quotes, brackets and letters. Each mixture is parsed at two
sizes. A mixture whose time grows more than the sizes allow, or that takes more time per character than `--limit`, is
measured again, and printed as a literal if it is still too slow. The exit status is 1 if any was printed.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, cast

from promptools import StreamParser, dialects
from promptools.dialects.reply_markers import reply_markers
from promptools.dialects.sample import TOOL, sample_text

SMALL, LARGE = 6_000, 48_000
GROWTH = 1.5
"""Allowed growth of the times, relative to the growth of the sizes."""
FLOOR = 0.004
"""Seconds below which a time is noise."""
PATIENCE = 30.0
"""Seconds after which one run is aborted."""
TOOLS: list[dict[str, Any]] = [
    TOOL,
    {"name": "ping", "parameters": {"type": "object", "properties": {"host": {"type": "string"}}}},
    {"name": "think", "parameters": {"type": "object", "properties": {"thought": {"type": "string"}}}},
]
PLAIN = (
    *(" ", "\n", "\t", "\r\n", "\n\n", "    ", " " * 40, "\n  ", "'", '"', '"""', "`", "```", "```json\n", "~~~", "\\"),
    *("{", "}", "[", "]", "(", ")", "<", ">", "</", "/>", "<!--", "-->", "<![CDATA[", "]]>", ",", ";", ":", "=", "|"),
    *("a", "1", "-", ".", "0.5", "null", "true", "NaN", "x y", "word ", "é", "name", "ping", "get_weather", "think"),
    *('"name": ', '"arguments": ', '{"name": "ping", "arguments": {', '{"a": ', '"city": "Oslo"', "city=", "host='"),
    *("name: ping\n", "host: a\n", "- ", "# ", "//", "/*", "*/", "> ", "&lt;", "\\n", "\\u00", "to=", "assistant"),
    *("<ping>", "</ping>", "<ping", "<get_weather>", "<city>", "</city>", "<think", "ping(", "ping:", "final"),
    *("analysis", "commentary", "functions.", "<think:a1>", "</think:a1>", "</think:b2>", "<tool", "<|", "|>"),
    *("Action:", "get_weather(city=", "\\ud83d", "\u200b", "name:", "arguments:\n", "value: ", "<tool>", "tool/"),
)  # fmt: skip


class TooSlowError(Exception):
    """One run took more than `PATIENCE`."""


@dataclass(frozen=True)
class Mixture:
    """A text that can be generated at any size, and how it is parsed."""

    begin: str
    unit: str
    end: str
    step: int | None
    """Characters per piece; None: the text is parsed whole."""
    finish_reason: str | None
    options: dict[str, Any]

    def text(self, size: int) -> str:
        """Return the text at about `size` characters."""
        return self.begin + self.unit * max(2, size // len(self.unit)) + self.end

    def seconds(self, size: int) -> float:
        """Measure the processor time of parsing the text."""
        text = self.text(size)
        step = self.step or len(text)
        parser = StreamParser(TOOLS, **self.options)
        gc.disable()
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
        start = time.process_time()
        try:
            for at in range(0, len(text), step):
                parser.feed(text[at : at + step])
            parser.close(cast(Any, self.finish_reason))
            return time.process_time() - start
        except TooSlowError:
            return PATIENCE
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            gc.enable()


def tokens() -> tuple[list[str], list[str]]:
    """Return the markers of all dialects, and an example call of each."""
    registered = [dialects.get(name) for name in dialects.names()]
    known = reply_markers()
    pairs = (*known.reasoning_tags.items(), *known.answer_tags.items())
    marks = {text for pair in pairs for text in pair} | {*known.end_tokens, *known.result_openers}
    for each in registered:
        marks |= {*each.closers, *each.stop, *(text for head in each.heads for text in head.literals)}
        if each.channels is not None:
            marks |= {
                *each.channels.markers,
                *each.channels.stripped_header.search_literals,
                *each.channels.stripped_header.prefixes,
            }
    calls: list[str] = []
    for each in registered:
        try:
            calls.append(sample_text(each))
        except Exception:  # noqa: BLE001  a dialect that is only read cannot write a sample
            continue
    return sorted(marks - {""}), calls


def mixture(dice: random.Random, marks: list[str], calls: list[str]) -> Mixture:
    """Generate a random mixture."""

    def token() -> str:
        kind = dice.random()
        if kind < 0.4:
            return dice.choice(marks)
        if kind < 0.75:
            return dice.choice(PLAIN)
        call = dice.choice(calls)
        if kind < 0.82:
            return call
        start, end = sorted((dice.randrange(len(call)), dice.randrange(len(call) + 1)))
        return call[: end + 1] if kind < 0.92 else call[start : end + 1]

    def some(least: int, most: int) -> str:
        return "".join(token() for _ in range(dice.randint(least, most)))

    options: dict[str, Any] = {}
    if dice.random() < 0.3:
        options["expect"] = dice.choice(dialects.names())
    if dice.random() < 0.1:
        options["dialect"] = dice.choice(dialects.names())
    if dice.random() < 0.2:
        options["strictness"] = dice.choice(("strict", "lenient"))
    if dice.random() < 0.1:
        options["in_reasoning"] = True
    if dice.random() < 0.1:
        options["rescue"] = True
    begin = dice.choice(("", "", "<think>", "```json\n", "```\n", "Words. ", "<tool_call>\n", some(1, 2), some(1, 2)))
    end = dice.choice(("", "", "", some(1, 1)))
    if dice.random() < 0.3:  # inside a call
        call = dice.choice(calls)
        at = dice.randrange(len(call))
        begin, end = call[:at], dice.choice((call[at:], call[at:], end))
    step = dice.choice((None, None, None, 7, 50, 1000))
    return Mixture(begin, some(1, 4), end, step, dice.choice((None, "stop", "length")), options)


def slow(each: Mixture, limit: float) -> str:
    """Return why a mixture is too slow; empty if it is not. A slow measurement is repeated."""
    small, large = each.seconds(SMALL), each.seconds(LARGE)
    if large < max(small, FLOOR) * LARGE / SMALL * GROWTH and large / len(each.text(LARGE)) * 1e6 < limit:
        return ""
    small, large = (min(each.seconds(size) for _ in range(3)) for size in (SMALL, LARGE))
    cost = large / len(each.text(LARGE)) * 1e6
    if cost > limit:
        return f"{cost:.1f} ms for 1,000 characters"
    if large < max(small, FLOOR) * LARGE / SMALL * GROWTH:
        return ""
    grown = each.seconds(4 * LARGE) / large  # the load of the machine does not grow with the text
    return f"{grown:.1f} times as much for 4 times the text" if grown > 4 * GROWTH else ""


def main() -> int:
    """Fuzz for `--seconds`; return the exit status."""
    options = argparse.ArgumentParser(description="Look for text that is read in more than linear time.")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", default=os.urandom(4).hex(), help="any word; by default another one each time")
    options.add_argument("--limit", type=float, default=25, help="milliseconds for 1,000 characters")
    arguments = options.parse_args()
    sys.stdout.write(f"mixtures in linear time: seed {arguments.seed}, {arguments.seconds:g} s\n")
    sys.stdout.flush()

    def stop(_number: int, _frame: object) -> None:
        raise TooSlowError

    signal.signal(signal.SIGVTALRM, stop)
    dice = random.Random(arguments.seed)
    marks, calls = tokens()
    end, count, slow_count = time.monotonic() + arguments.seconds, 0, 0
    while time.monotonic() < end:
        candidate = mixture(dice, marks, calls)
        candidate.seconds(500)  # warm up: tools are prepared and patterns compiled once
        why = slow(candidate, arguments.limit)
        count += 1
        if why:
            slow_count += 1
            sys.stdout.write(f"{why}: {candidate}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{count} mixtures, {slow_count} slow\n")
    return 1 if slow_count else 0


if __name__ == "__main__":
    sys.exit(main())
