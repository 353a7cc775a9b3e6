"""The real servers that the table is played on: what each runs, what its model speaks, how it is started.

Adding a server is adding a `Rig` here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import scenes
import table
from table import Family

from promptools.lab import llamacpp
from promptools.lab.script import Line
from promptools.lab.server import Server
from promptools.lab.weather import prompt_mark

Start = Callable[[list[Line], str, Path], Server]


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
    more: Callable[[str], Iterable[Line]] = lambda prompted: ()
    """Lines for the tests of this server alone."""
    mark: str | None = None
    """The marker that chooses its tests."""

    def lines(self) -> list[Line]:
        prompted = prompt_mark()
        return [*table.lines(self.family, prompted), *self.more(prompted)]


def _llamacpp(template: llamacpp.Template, **settings: Any) -> Start:
    def start(lines: list[Line], name: str, folder: Path) -> Server:
        if not llamacpp.can_serve():
            pytest.skip("xllamacpp or gguf is not installed here")
        return llamacpp.serve(lines, template=template, name=name, folder=folder, **settings)

    return start


def _llamacpp_version() -> str:
    return f"llama.cpp (xllamacpp {version('xllamacpp')})" if llamacpp.can_serve() else "llama.cpp"


RIGS = {
    rig.name: rig
    for rig in (
        Rig(
            "llamacpp-hermes",
            f"{_llamacpp_version()}, a template with Hermes tags",
            kind="llamacpp",
            family="hermes",
            start=_llamacpp("hermes", slots=8),
            more=scenes.hermes,
        ),
        Rig(
            "llamacpp-harmony",
            f"{_llamacpp_version()}, gpt-oss",
            kind="llamacpp",
            family="harmony",
            start=_llamacpp("harmony"),
            more=scenes.gpt_oss,
        ),
        Rig(
            "llamacpp-plain",
            f"{_llamacpp_version()}, a template that knows no tools",
            kind="llamacpp",
            family="hermes",
            start=_llamacpp("plain"),
            more=scenes.hermes,
        ),
    )
}


class Servers:
    """The servers of a session, each started when it is first asked for."""

    def __init__(self, folder: Callable[[str], Path]) -> None:
        self._folder = folder
        self._running: dict[str, Server] = {}
        self._failed: dict[str, BaseException] = {}

    def __getitem__(self, name: str) -> Server:
        if name in self._failed:
            raise self._failed[name]  # a skip or a failure to start is not tried again
        if name not in self._running:
            rig = RIGS[name]
            try:
                self._running[name] = rig.start(rig.lines(), f"{name}-scripted", self._folder(name))
            except BaseException as error:
                self._failed[name] = error
                raise
        return self._running[name]

    def stop(self) -> None:
        for server in self._running.values():
            server.stop()
