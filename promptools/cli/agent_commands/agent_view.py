"""The live view of a run: text as it arrives, calls and results, and a status line where there is a terminal."""

from __future__ import annotations

import importlib.util
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, Self

from promptools.cli.terminal_output import print_styled
from promptools.harness.agent import (
    CallEvent,
    CompactionEvent,
    ReasoningEvent,
    ResultEvent,
    RetryEvent,
    StepEvent,
    TextEvent,
)
from promptools.wire.chat_encoder import add_usage

if TYPE_CHECKING:
    from types import TracebackType

    from promptools.harness.agent import RunEvent

SHOWN_LINES = 12
"""Lines of a result that are shown."""
SHOWN_ARGUMENTS = 400


class AgentView:
    """Shows the events of a run. Control characters of a model or a tool never reach the terminal."""

    def __init__(self, *, shown: Literal["all", "text", "nothing"] = "all") -> None:
        self._shown = shown
        self._stack = ExitStack()
        self._console: Any = None
        self._status: Any = None
        self._began = time.monotonic()
        self._usage: dict[str, Any] | None = None
        self._steps = 0
        self._in_text, self._style = "", ""

    def __enter__(self) -> Self:
        if self._shown == "all" and sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
            from rich.console import Console

            self._console = Console(highlight=False)
            self._status = self._stack.enter_context(self._console.status("working"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_text()
        self._stack.close()
        self._status = None

    def show(self, event: RunEvent) -> None:
        """Show an event."""
        if self._shown == "nothing" or (self._shown == "text" and not isinstance(event, TextEvent | StepEvent)):
            return
        match event:
            case TextEvent(text):
                self._write(text, "")
            case ReasoningEvent(text):
                self._write(text, "dim")
            case CallEvent(call):
                self._line(
                    ("call ", "bold green"), (f"{call.name} {printable(call.arguments_json)[:SHOWN_ARGUMENTS]}", "")
                )
            case ResultEvent(result):
                style = "red" if result.is_error else "dim"
                self._line((_first_lines(printable(result.content)), style))
            case RetryEvent(attempt, error, message):
                self._line((f"attempt {attempt} cannot be used: {error}: {printable(message)[:300]}", "yellow"))
            case CompactionEvent(stage, before, after):
                self._line((f"the conversation was made shorter ({stage}): {before} to {after} characters", "yellow"))
            case StepEvent(number):
                self._end_text()
                self._steps = number
                self._usage = add_usage(self._usage, event.usage)
            case _:
                pass
        self._show_status()

    def ask(self, question: str) -> bool:
        """Ask the user; anything but yes is no."""
        self._end_text()
        if self._status is not None:
            self._status.stop()
        try:
            answer = self._input(f"{question} [y/N] ")
        except EOFError:
            answer = ""
        if self._status is not None:
            self._status.start()
        return answer.strip().lower() in {"y", "yes"}

    def _input(self, prompt: str) -> str:
        if self._shown != "nothing":
            return input(prompt)
        print(prompt, end="", file=sys.stderr, flush=True)  # stdout is for JSON alone
        return input()

    def _show_status(self) -> None:
        if self._status is not None:
            tokens = (self._usage or {}).get("total_tokens", 0)
            self._status.update(f"step {self._steps + 1}, {tokens} tokens, {time.monotonic() - self._began:.0f} s")

    def _write(self, text: str, style: str) -> None:
        """Write a piece of text; whole lines at once where a status line is below them."""
        if style != self._style:
            self._end_text()
        self._style = style
        self._in_text += printable(text)
        while "\n" in self._in_text:
            line, _, self._in_text = self._in_text.partition("\n")
            print_styled([(line, style)], self._console)

    def _end_text(self) -> None:
        if self._in_text:
            print_styled([(self._in_text, self._style)], self._console)
            self._in_text = ""

    def _line(self, *pieces: tuple[str, str]) -> None:
        self._end_text()
        print_styled(pieces, self._console)


def printable(text: str) -> str:
    """Return text without the control characters that a terminal would obey."""
    return "".join(char if char in "\n\t" or char.isprintable() else "�" for char in text)


def _first_lines(text: str) -> str:
    lines = text.splitlines()
    more = [f"... {len(lines) - SHOWN_LINES} more lines"] if len(lines) > SHOWN_LINES else []
    return "\n".join([*lines[:SHOWN_LINES], *more])
