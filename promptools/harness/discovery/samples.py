"""Samples of the model's replies: the log that keeps them, and the sampler that asks the questions.

A run that ended early is continued: the samples in the log are reused. Questions whose requests failed are asked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from promptools.errors import UpstreamError, without_credentials
from promptools.harness.discovery.questions import Question
from promptools.harness.evaluation.resumable_log import ResumableLog
from promptools.harness.evaluation.worker_pool import run_workers
from promptools.json_values import is_object, try_json
from promptools.wire.chat_decoder import reasoning_of
from promptools.wire.json_body import as_object


def well_formed(value: Any) -> Any:
    """Return a JSON value with lone surrogates in its texts replaced by U+FFFD, since UTF-8 cannot encode them."""
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
    """A call in a reply."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    valid_json: bool = True
    """Whether the model wrote the arguments as strict JSON, so that no repair was needed to read them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The model's reply to one question. It also holds the data about the question that the findings need."""

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
    """The promptools mode of the last request to the server; empty if the request was forwarded unchanged."""
    tokens: int = 0
    error: str = ""
    """Why there is no reply; empty if there is one. A question without a reply is asked again when the run is
    resumed."""

    def calls_tool(self, name: str) -> bool:
        """Return whether the reply calls the tool `name`."""
        return any(call.name == name for call in self.calls)


class SampleLog(ResumableLog):
    """Maps the key of each question to its sample. If `path` is given, the samples are also written to this file.

    If the file exists, the settings recorded in it must equal `settings`.
    """

    PLACE = "folder"

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.samples: dict[str, Sample] = {}
        super().__init__(path, settings)

    def add(self, row: dict[str, Any]) -> None:
        """Add a sample that was read from the file."""
        try:
            sample = TypeAdapter(Sample).validate_python(row)
        except ValidationError:
            return
        self.samples[sample.key] = sample

    def record(self, sample: Sample) -> None:
        """Add a sample; if the log has a file, write the sample to it immediately."""
        self.samples[sample.key] = sample
        self.write(asdict(sample))

    def get(self, key: str) -> Sample | None:
        """Return the sample for the question with this key; None if the question was not answered."""
        sample = self.samples.get(key)
        return sample if sample and not sample.error else None


# The sampler: it draws several samples at once, within a budget, unless the log already has them.


Progress: TypeAlias = "Callable[[str, int, int], object]"
"""A callback that gets, after each reply, a short summary of it, the number of finished questions, and the total.

The total is the number of questions that were given to `Sampler.sample` together."""

OPTIONS = {"undeclared": "call", "trace": True, "corrections": 0}
REPAIRS = frozenset({"json", "closer", "unwrap"})
"""Kinds of repairs that show that the arguments of the repaired call were not strict JSON."""


@dataclass(slots=True)
class Budget:
    """How many requests and tokens may be used, and how many were used so far. A maximum of None means no limit."""

    max_requests: int | None = None
    max_tokens: int | None = None
    requests: int = 0
    tokens: int = 0

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return (self.max_requests is not None and self.requests >= self.max_requests) or (
            self.max_tokens is not None and self.tokens >= self.max_tokens
        )


@dataclass(slots=True)
class Sampler:
    """Asks questions through a promptools client. `create` holds further parameters for each request."""

    client: Any
    model: str
    log: SampleLog
    budget: Budget = field(default_factory=Budget)
    workers: int = 4
    seed: int = 0
    create: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """promptools options for each request, in addition to those that a discovery always sets (`OPTIONS`)."""
    progress: Progress | None = None
    unsampled: Counter[str] = field(default_factory=Counter[str])
    """For each stage, the number of questions that were not asked because the budget was spent."""
    failed: Counter[str] = field(default_factory=Counter[str])

    def sample(self, questions: Sequence[Question]) -> list[Sample]:
        """Ask the questions that have no sample in the log; return the samples of all questions.

        A question that failed, or was not asked because the budget was spent, has no sample. Raises `UpstreamError` if
        all questions were asked and all failed.
        """
        missing = [question for question in questions if self.log.get(question.key) is None]
        drawn = self._draw(missing, len(questions))
        if missing and drawn and all(sample.error for sample in drawn) and len(drawn) == len(questions):
            raise UpstreamError(f"none of {len(drawn)} requests was answered; the last: {drawn[-1].error}")
        answered = [self.log.get(question.key) for question in questions]
        return [sample for sample in answered if sample is not None]

    def _draw(self, questions: Sequence[Question], total: int) -> list[Sample]:
        drawn: list[Sample] = []
        waiting = iter(questions)

        def affordable() -> Iterator[Question]:
            while not self.budget.spent and (question := next(waiting, None)) is not None:
                self.budget.requests += 1
                yield question

        def show(sample: Sample) -> None:
            drawn.append(sample)
            self._show(sample, total - len(questions) + len(drawn), total)

        run_workers(self._ask, affordable(), self._record, workers=self.workers, show=show)
        for question in waiting:
            self.unsampled[question.stage] += 1
        return drawn

    def _record(self, sample: Sample) -> None:
        self.log.record(sample)
        self.budget.tokens += sample.tokens
        self.failed[sample.stage] += bool(sample.error)

    def _show(self, sample: Sample, done: int, total: int) -> None:
        if self.progress:
            outcome = sample.error or ", ".join(call.name for call in sample.calls) or "no call"
            self.progress(f"{sample.stage}: {outcome}", done, total)

    def _ask(self, question: Question) -> Sample:
        options = {**self.options, **OPTIONS, **question.options}
        body = {"max_tokens": 512, "temperature": 1, "seed": self.seed + question.repeat, **self.create}
        asked: dict[str, Any] = {
            "key": question.key,
            "stage": question.stage,
            "prompt": question.prompt,
            "repeat": question.repeat,
            "kind": question.kind,
            "subject": question.subject,
        }
        try:
            reply = self.client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": question.prompt}],
                **({"tools": list(question.tools)} if question.tools else {}),
                extra_body={"promptools": options, **body},
            )
            return Sample(**asked, **_answer(reply.model_dump(warnings=False)))
        except Exception as error:  # noqa: BLE001 whatever one question raises, the others go on
            return Sample(**asked, error=without_credentials(f"{type(error).__name__}: {error}"))


def _answer(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of a sample that come from the reply."""
    choice = reply["choices"][0]
    message = choice["message"]
    report: dict[str, Any] = reply.get("promptools") or {}
    trace: dict[str, Any] = report.get("trace", report)
    attempts = trace.get("attempts")
    return {
        "content": well_formed(message.get("content") or ""),
        "reasoning": well_formed(reasoning_of(message)),
        "calls": tuple(_calls(message, _choice_trace(trace))),
        "mode": attempts[-1]["mode"] if attempts else "",
        "finish_reason": choice.get("finish_reason") or "",
        "tokens": as_object(reply.get("usage")).get("total_tokens") or 0,
    }


def _choice_trace(trace: Mapping[str, Any]) -> dict[str, Any]:
    choices = trace.get("choices")
    return dict(choices[0]) if choices else {}


def _calls(message: Mapping[str, Any], trace: Mapping[str, Any]) -> list[CallMade]:
    made: list[CallMade] = []
    for call in message.get("tool_calls") or ():
        fixes = trace.get("fixes", {}).get(call["id"], ())
        valid = not any(fix["kind"] in REPAIRS for fix in fixes)
        arguments = try_json(call["function"]["arguments"] or "{}")
        if not is_object(arguments):
            arguments, valid = {}, False
        made.append(CallMade(well_formed(call["function"]["name"]), well_formed(arguments), valid))
    made += [
        CallMade(well_formed(bad["name"]), {}, valid_json=False)
        for bad in trace.get("malformed", ())
        if bad.get("name")
    ]
    return made
