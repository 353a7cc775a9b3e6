"""The real servers that the table is played on: what each runs, what its model speaks, how it is started.

Adding a server is adding a `Rig` here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import rig_ollama
import rig_vllm
import scenes
import table
from recipes.ollama import VERSION as OLLAMA_VERSION
from rig.ollama import OllamaTemplate
from table import Family

from promptools.lab import llamacpp_server
from promptools.lab.script import ScriptedReply
from promptools.lab.server_process import Server
from promptools.lab.weather import prompt_mode_phrase

Start = Callable[[list[ScriptedReply], str, Path], Server]


@dataclass(frozen=True, slots=True)
class Rig:
    """One real server, started in one way, with one model."""

    name: str
    title: str
    """The server, its version and what is special about it, for the page of results."""
    kind: str
    """What a config calls this kind of server."""
    family: Family
    start: Start
    """Start it: with the lines of its model, the model's name, and a folder for its files."""
    mode: str = "native"
    """The mode that answers where nothing goes wrong."""
    dialect: str = "json"
    """What prompt mode asks for: of the family that the server tells, else JSON in a fence."""
    more: Callable[[str], Iterable[ScriptedReply]] = lambda prompted: ()
    """Lines for the tests of this server alone; `prompted` is a phrase of all that we prompt, and of nothing else."""
    raw: bool = True
    """Whether rows are played in raw mode, too."""
    raw_alone: bool = False
    """Whether they are played in no other way."""
    parts: int = 0
    """Servers that share the rows, beside the one with the lines of `more`: what a scripted model takes for a token
    grows with the number of its lines. 0: the one has them all."""
    host: str | None = None
    """The server that has this model among others, which starts it; the rest of the name is the model's."""
    mark: str | None = None
    """The marker that chooses its tests."""

    @property
    def model(self) -> str:
        """Name the model; by it we know gpt-oss."""
        if self.host is not None:
            return self.name.removeprefix(f"{self.host}-")
        return f"gpt-oss-on-{self.name}" if self.family == "harmony" else self.name

    def lines(self, part: int | None = None) -> list[ScriptedReply]:
        """Return what its model says; `part` is one of `parts`, None the server beside them."""
        prompted = prompt_mode_phrase(self.dialect)
        if part is not None:
            return [*table.lines(self.name, self.family, prompted, self.dialect, part=part, parts=self.parts)]
        rows = () if self.parts else table.lines(self.name, self.family, prompted, self.dialect)
        return [*rows, *self.more(prompted)]


def _llamacpp(template: llamacpp_server.LlamacppTemplate, **settings: Any) -> Start:
    def start(lines: list[ScriptedReply], name: str, folder: Path) -> Server:
        if not llamacpp_server.can_serve():
            pytest.skip("xllamacpp or gguf is not installed here")
        return llamacpp_server.serve(lines, template=template, name=name, folder=folder, **settings)

    return start


def _llamacpp_version() -> str:
    return f"llama.cpp (xllamacpp {version('xllamacpp')})" if llamacpp_server.can_serve() else "llama.cpp"


def _unused(lines: list[ScriptedReply], name: str, folder: Path) -> Server:
    raise AssertionError("the model is one of a server that is started with all of them")


def _ollama(kind: OllamaTemplate, title: str, mode: str = "native", **keys: Any) -> Rig:
    return Rig(
        f"ollama-{kind}",
        f"Ollama {OLLAMA_VERSION}, {title}",
        kind="ollama",
        family=rig_ollama.FAMILIES[kind],
        start=_unused,
        mode=mode,
        dialect=rig_ollama.dialect(kind),
        host="ollama",
        mark="ollama",
        **keys,
    )


def _vllm(name: str, boot: rig_vllm.Boot) -> Rig:
    return Rig(
        name,
        boot.title,
        kind="vllm",
        family=boot.family,
        start=boot.start,
        mode=boot.mode,
        raw=boot.family != "harmony",
        raw_alone=boot.raw_alone,
        more=boot.more,
        mark="vllm",
    )


RIGS = {
    rig.name: rig
    for rig in (
        Rig(
            "llamacpp-hermes",
            f"{_llamacpp_version()}, a template with Hermes tags",
            kind="llamacpp",
            family="hermes",
            start=_llamacpp("hermes", slots=8),
            parts=2,
            dialect="hermes",
            more=lambda prompted: scenes.hermes(prompted, scenes.HERMES_CALL),
        ),
        Rig(
            "llamacpp-harmony",
            f"{_llamacpp_version()}, gpt-oss",
            kind="llamacpp",
            family="harmony",
            start=_llamacpp("harmony"),
            parts=3,
            raw=False,
            more=scenes.gpt_oss,
        ),
        Rig(
            "llamacpp-plain",
            f"{_llamacpp_version()}, a template that knows no tools",
            kind="llamacpp",
            family="hermes",
            start=_llamacpp("plain"),
            parts=1,
            mode="prompt",
            raw=False,
            more=scenes.hermes,
        ),
        _ollama("go", "a template in Go, with Hermes tags"),
        _ollama("jinja", "a chat template in the model file, with Hermes tags"),
        _ollama("gptoss", "gpt-oss", mode="harmony", raw=False),
        _ollama("coder", "Qwen3-Coder", "raw"),
        _ollama("think", "Qwen3 that thinks", raw_alone=True),
        _ollama("notools", "a template that knows no tools", mode="prompt", raw=False),
        *(_vllm(name, boot) for name, boot in rig_vllm.BOOTS.items()),
    )
}


def _parameters(rig: Rig, cases: Iterable[table.Case]) -> Iterator[Any]:
    marks = [getattr(pytest.mark, rig.mark)] if rig.mark else []
    for case in cases:
        yield pytest.param(rig, case, id=f"{rig.name}-{case.name}", marks=marks)


PLAYED = [
    parameter
    for rig in RIGS.values()
    if not rig.raw_alone
    for parameter in _parameters(rig, table.played(rig.name, rig.family))
]
"""The parameters `rig` and `case` of a test that is run for every row on every rig."""

PLAYED_RAW = [
    parameter
    for rig in RIGS.values()
    if rig.raw
    for parameter in _parameters(rig, table.played_raw(rig.name, rig.family))
]
"""The same for raw mode: the rows as they are there."""

HOSTS: dict[str, Callable[[Path], Server]] = {"ollama": rig_ollama.start}
"""Servers that have several models, and how they are started."""


class Servers:
    """The servers of a session, each started when it is first asked for."""

    def __init__(self, folder: Callable[[str], Path], show: Callable[[], None] = lambda: None) -> None:
        self._folder, self._show = folder, show
        self._running: dict[str, Server] = {}
        self._failed: dict[str, BaseException] = {}
        self._begun: dict[str, Future[Server]] = {}
        self._pool = ThreadPoolExecutor(2)

    def begin(self, names: Iterable[str]) -> None:
        """Start servers that take long, two at a time, while the tests of those before them run."""
        for name in names:
            rig = RIGS[name]
            self._begun[name] = self._pool.submit(rig.start, rig.lines(), rig.model, self._folder(name))

    def __getitem__(self, name: str) -> Server:
        """Return the server of a rig, named after its model."""
        rig = RIGS[name]
        if rig.host is not None:
            return replace(self.host(rig.host), name=rig.model)
        if rig.mark == "vllm" and name not in self._running and rig_vllm.shared():
            self._end_others(
                rig.mark
            )  # its tests are over: of those shared by several processes one has all of a server
        return self._started(name, lambda folder: rig.start(rig.lines(), rig.model, folder))

    def with_row(self, rig: Rig, case: table.Case) -> Server:
        """Return the server of a rig whose model knows a row."""
        if not rig.parts:
            return self[rig.name]
        part = table.part_of(case, rig.parts)
        return self._started(f"{rig.name}-{part}", lambda folder: rig.start(rig.lines(part), rig.model, folder))

    def host(self, name: str) -> Server:
        """Return a server that has several models."""
        return self._started(name, HOSTS[name])

    def _started(self, name: str, start: Callable[[Path], Server]) -> Server:
        if name in self._failed:
            raise self._failed[name]  # a skip or a failure to start is not tried again
        if name not in self._running:
            begun = self._begun.pop(name, None)
            try:
                self._running[name] = self._waited(begun) if begun is not None else start(self._folder(name))
            except BaseException as error:
                self._failed[name] = error
                raise
        return self._running[name]

    def _end_others(self, mark: str) -> None:
        for name in [each for each in self._running if each in RIGS and RIGS[each].mark == mark]:
            self._running.pop(name).stop()

    def _waited(self, begun: Future[Server]) -> Server:
        while not begun.done():
            self._show()
            wait([begun], timeout=0.5)
        self._show()
        return begun.result()

    def stop(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        unasked = [each.result() for each in self._begun.values() if not (each.cancelled() or each.exception())]
        for server in (*self._running.values(), *unasked):
            server.stop()
