"""The exception of a tool whose work took too long."""

from __future__ import annotations

from promptools.errors import PromptoolsError


class ToolTimeoutError(PromptoolsError):
    """A tool was ended because it took too long.

    `seconds` is how long it had, `output` what it had written until then. `observation` is what the model reads, which
    is no error for it, as a command that fails is none; without one it reads the message, as of any exception.
    """

    def __init__(self, message: str, *, seconds: float, output: str = "", observation: str = "") -> None:
        super().__init__(message)
        self.seconds = seconds
        self.output = output
        self.observation = observation
