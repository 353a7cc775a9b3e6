"""What the model reads of a command's result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from promptools.harness.sandbox import CommandResult
from promptools.toolsets.tool_timeout import ToolTimeoutError

Observation: TypeAlias = Callable[[CommandResult, float], str]
"""Gets the result and the seconds that the command had; returns the text for the model."""


def observe(result: CommandResult, seconds: float, observation: Observation, note: str = "") -> str:
    """Return what the model reads, with a note after it; raise it as `ToolTimeoutError` if the time was up."""
    text = observation(result, seconds) + note
    if result.timed_out:
        raise ToolTimeoutError(
            f"the command took more than {seconds:g} seconds",
            seconds=seconds,
            output=result.output,
            observation=text,
        )
    return text


def plain_observation(result: CommandResult, seconds: float) -> str:
    """Return the output, and what else matters in brackets after it."""
    notes = [_ended(result, seconds)] if result.timed_out or result.stopped else []
    if result.exit_code and not notes:
        notes.append(f"[exit code {result.exit_code}]")
    if not result.output.strip() and not notes:
        return "[no output, exit code 0]"
    end = "" if not result.output or result.output.endswith("\n") else "\n"
    return result.output + (end + "\n".join(notes) if notes else "")


def tagged_observation(result: CommandResult, seconds: float) -> str:
    """Return the exit code and the output in tags, as the harness of gpt-oss' reproduction has it."""
    if result.timed_out or result.stopped:
        return f"{_ended(result, seconds)}\n<output>\n{result.output}\n</output>"
    return f"<returncode>{result.exit_code}</returncode>\n<output>\n{result.output}</output>"


def _ended(result: CommandResult, seconds: float) -> str:
    if result.stopped:
        return f"[the command was ended: {result.stopped}]"
    return f"[the command was ended after {seconds:g} seconds; it must not wait for input, and long work needs parts]"
