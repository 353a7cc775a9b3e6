"""Ask as an app does, with the official client, and gather what it sees: whole or streamed, good or an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import openai

from promptools.harness.agent.loop_effects import AccumulatedReply
from promptools.wire.chat_decoder import Delta, decode_chunk, decode_reply

Form = Literal["whole", "streamed"]
FORMS: tuple[Form, ...] = ("whole", "streamed")


@dataclass
class Got:
    """One answer as an app sees it; `choices` by their index."""

    choices: dict[int, AccumulatedReply] = field(default_factory=lambda: {0: AccumulatedReply()})
    usage: dict[str, Any] | None = None
    report: dict[str, Any] = field(default_factory=dict)
    """The `promptools` key of the answer; empty where there was none."""
    headers: Any = None
    error: str | None = None
    """What the client raised; what came before it in a stream is gathered all the same."""
    status: int | None = None
    """The error's HTTP status; None for one inside a stream."""
    problem: str = ""
    """The error's own words."""

    def take(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            self.usage = delta.usage or self.usage
            if delta.index is not None:
                choice = self.choices.setdefault(delta.index, AccumulatedReply())
                list(choice.feed([replace(delta, index=0)]))

    @property
    def content(self) -> str:
        return self.choices[0].content

    @property
    def reasoning(self) -> str:
        return self.choices[0].reasoning

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(call.name, call.arguments) for call in self.choices[0].calls]

    @property
    def ids(self) -> list[str]:
        return [call.id for call in self.choices[0].calls]

    @property
    def finish_reason(self) -> str | None:
        return self.choices[0].finish_reason

    @property
    def trace(self) -> dict[str, Any]:
        return self.report.get("trace", self.report)

    @property
    def attempts(self) -> list[tuple[str, str]]:
        return [(attempt["mode"], attempt["outcome"]) for attempt in self.trace.get("attempts", ())]

    def message(self) -> dict[str, Any]:
        return self.choices[0].message(reasoning=False)


def ask(client: openai.OpenAI, model: str, messages: list[Any], form: Form, **keys: Any) -> Got:
    """Ask, and gather the answer; an error that the client raises is part of what is seen."""
    got = Got()
    if form == "streamed":
        keys = {"stream": True, "stream_options": {"include_usage": True}, **keys}
    try:
        raw: Any = client.chat.completions.with_raw_response.create(model=model, messages=messages, **keys)
        got.headers = raw.headers
        said = raw.parse()
        for part in said if form == "streamed" else [said]:
            data = part.model_dump(warnings=False)
            got.report = data.get("promptools") or got.report
            got.take(decode_chunk(data) if form == "streamed" else decode_reply(data))
    except openai.APIError as error:
        got.error = str(error.body or error)
        got.problem = str(error.body.get("message") if isinstance(error.body, dict) else error.body or error)
        got.status = getattr(error, "status_code", None)
    return got


class Proxies:
    """`promptools serve` before servers, one process each."""

    def __init__(self) -> None:
        self._shared: dict[str, str] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}

    def before(self, base_url: str, kind: str) -> str:
        """Return the URL of a proxy that all tests of the session share."""
        if base_url not in self._shared:
            self._shared[base_url] = self.fresh(base_url, kind)
        return self._shared[base_url]

    def fresh(self, base_url: str, kind: str) -> str:
        """Return the URL of a proxy that has seen nothing yet."""
        return self.start("--provider", kind, "--base-url", base_url)

    def configured(self, config: Path) -> str:
        """Return the URL of a proxy with this config; the tests of a session share it."""
        if str(config) not in self._shared:
            self._shared[str(config)] = self.start("--config", str(config), "--allow-provider")
        return self._shared[str(config)]

    def start(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "promptools", "serve", "--port", "0", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        url = next(line.split()[1] for line in process.stdout if line.startswith("listening "))
        self._running[url] = process
        return url

    def end(self, url: str) -> None:
        """End one that is not shared: each costs the processor something, also while it does nothing."""
        process = self._running.pop(url)
        process.terminate()
        process.wait(timeout=300)
        assert process.stdout is not None
        process.stdout.close()

    def stop(self) -> None:
        for url in list(self._running):
            self.end(url)
