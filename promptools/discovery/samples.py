"""What the model answered: samples, and the log that keeps each of them.

A run that ended early goes on with the samples that the log has; those that failed are drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from promptools.harness.evaluation.resumable_log import ResumableLog


def well_formed(value: Any) -> Any:
    """Return a JSON value with U+FFFD for halves of surrogate pairs, which neither UTF-8 nor TOML can hold."""
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case list():
            return [well_formed(own) for own in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {well_formed(key): well_formed(own) for key, own in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class CallMade:
    """A call of a reply."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    valid_json: bool = True
    """Whether the arguments were strict JSON as the model wrote them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The reply to a question."""

    key: str
    stage: str
    prompt: str
    repeat: int
    kind: str = ""
    subject: str = ""
    content: str = ""
    reasoning: str = ""
    calls: tuple[CallMade, ...] = ()
    finish_reason: str = ""
    mode: str = ""
    """The mode in which the server was asked; empty if the request was forwarded as it is."""
    tokens: int = 0
    error: str = ""
    """Why there is no reply; such a question is asked again when the run goes on."""

    def calls_tool(self, name: str) -> bool:
        """Whether the tool is called."""
        return any(call.name == name for call in self.calls)


class SampleLog(ResumableLog):
    """Samples by key, in a file if there is a path. `settings` must be those of the file if it exists already."""

    PLACE = "folder"

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.samples: dict[str, Sample] = {}
        super().__init__(path, settings)

    def add(self, row: dict[str, Any]) -> None:
        """Add a sample that the file has."""
        try:
            sample = TypeAdapter(Sample).validate_python(row)
        except ValidationError:
            return
        self.samples[sample.key] = sample

    def record(self, sample: Sample) -> None:
        """Add a sample, on the disk at once."""
        self.samples[sample.key] = sample
        self.write(asdict(sample))

    def get(self, key: str) -> Sample | None:
        """Return the sample of a question that was answered."""
        sample = self.samples.get(key)
        return sample if sample and not sample.error else None
