"""What the rows of the table are asked on real servers: each question once, and many at a time.

A server that speaks token by token says eight answers in hardly more time than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import openai
import pytest
from asking import FORMS, Form, Got, ask
from clients import Clients, provider
from rig_vllm import AT_ONCE, server_of, shared
from rigs import Rig, Servers
from table import Case

Way = Literal["straight", "client", "proxy", "harmony", "raw"]
"""Straight at the server; with our transport inside the client; through our proxy; inside, in one mode alone."""


class Question(NamedTuple):
    """One row, asked in one way."""

    rig: Rig
    case: Case
    way: Way
    form: Form

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.rig.name, self.case.name, self.way, self.form


class Asked:
    """The answers of a session. Who asks first on a rig has all asked that its tests will want."""

    def __init__(self, clients: Clients, servers: Servers, planned: Iterable[Question]) -> None:
        self._clients, self._servers = clients, servers
        self._planned: dict[str, list[Question]] = {}
        for question in planned:
            self._planned.setdefault(question.rig.name, []).append(question)
        self._answers: dict[tuple[str, str, str, str], Future[list[Got]]] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def __call__(self, rig: Rig, case: Case, way: Way, form: Form, *, anew: bool = False) -> list[Got]:
        """Return what the app saw: the answer, and the one to the results of its calls where the row has one."""
        question = Question(rig, case, way, form)
        if anew:
            del self._answers[question.key]
        for each in (question, *self._planned.pop(rig.name, ())):
            if each.key not in self._answers:
                self._answers[each.key] = self._pool.submit(_talk, each, *self._client(each))
        return self._answers[question.key].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _client(self, question: Question) -> tuple[openai.OpenAI, str]:
        rig, case = question.rig, question.case
        name = self._servers.with_row(rig, case).name
        if question.way == "straight":
            return self._clients.straight(rig, case), name
        return self._clients.before(rig) if question.way == "proxy" else self._clients.inside(rig, case), name


def planned(items: Iterable[pytest.Item]) -> Iterator[Question]:
    """Return what tests say that they will ask: by the mark `asks`, or by their parameters `way` and `form`.

    Where several processes share the tests, only those of servers that one of them has for itself: each would ask for
    all the others.
    """
    for item in items:
        told = parameters(item)
        if isinstance(told.get("case"), Case) and not (shared() and server_of(item.nodeid) is None):
            mark = item.get_closest_marker("asks")
            for way in mark.args if mark else [told["way"]]:
                if way == "raw" and not is_raw(told["rig"], told["case"]):
                    continue
                for form in [told["form"]] if "form" in told else FORMS:
                    yield Question(told["rig"], told["case"], way, form)


def cases(items: Iterable[pytest.Item]) -> list[Case]:
    """Return the rows that tests have as a parameter."""
    found = (parameters(item).get("case") for item in items)
    return [case for case in found if isinstance(case, Case)]


def parameters(item: pytest.Item) -> dict[str, Any]:
    """Return those of a test; it may have none."""
    return item.callspec.params if hasattr(item, "callspec") else {}


def is_raw(rig: Rig, case: Case) -> bool:
    """Return whether a row is asked in raw mode on a rig."""
    return rig.raw and case.in_raw_mode(rig.name, rig.family) is not None


def _talk(question: Question, client: openai.OpenAI, model: str) -> list[Got]:
    _, case, way, form = question
    body: dict[str, Any] = case.body()
    if way in {"harmony", "raw"}:
        options = case.options if way == "raw" else {}
        body |= {"extra_body": {"promptools": {"trace": True, **options, "mode": way}}}
    elif way != "straight":
        body |= case.ours(provider(case, form) if way == "proxy" else None)
    got = ask(client, model, form=form, **body)
    if case.answer is None or way in {"straight", "harmony"}:
        return [got]
    results = [{"role": "tool", "tool_call_id": each, "content": case.result} for each in got.ids]
    messages = [*body.pop("messages"), got.message(), *results]
    return [got, ask(client, model, messages, form, **body)]
