"""Clients that the table is played through: straight at a server, with our transport inside, and before our proxy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import openai
from asking import FORMS, Form, Proxies
from configs import config_of, told_of
from rigs import Rig, Servers
from table import Case

from promptools.client import OpenAI
from promptools.fallback import Breaker


def provider(case: Case, form: Form) -> str:
    """Name the provider by which the proxy knows a case's server."""
    return f"{case.name}, {form}"


class Clients:
    """One of a kind for each server; whoever asks for one gets it without memory of earlier failures."""

    def __init__(
        self, servers: Servers, proxies: Proxies, folder: Callable[[str], Path], cases: Iterable[Case]
    ) -> None:
        self._servers, self._proxies, self._folder = servers, proxies, folder
        self._cases = {case.name: case for case in cases}
        self._made: dict[tuple[str, str], openai.OpenAI] = {}

    def straight(self, rig: Rig, case: Case) -> openai.OpenAI:
        """Return the official one, straight at the server."""
        url = self._servers.with_row(rig, case).base_url
        return self._kept(rig, f"straight at {url}", lambda: _plain(url))

    def inside(self, rig: Rig, case: Case | None = None) -> openai.OpenAI:
        """Return one with our transport inside, for a row or for what the server's own lines answer."""
        url = (self._servers[rig.name] if case is None else self._servers.with_row(rig, case)).base_url

        def make() -> OpenAI:
            return OpenAI(base_url=url, provider=rig.kind, config=config_of(rig.kind, url), **_settings())

        return self._kept(rig, f"inside, {url}", make).with_options(breaker=Breaker())

    def before(self, rig: Rig) -> openai.OpenAI:
        """Return one that talks to our proxy; a request names `provider(case, form)`, so that it has no past."""
        return self._kept(rig, "before", lambda: _plain(self._proxies.configured(self._config(rig))))

    def close(self) -> None:
        for client in self._made.values():
            client.close()

    def _kept(self, rig: Rig, kind: str, make: Callable[[], openai.OpenAI]) -> openai.OpenAI:
        if (rig.name, kind) not in self._made:
            self._made[rig.name, kind] = make()
        return self._made[rig.name, kind]

    def _config(self, rig: Rig) -> Path:
        """Write a config with a provider for each case that is asked, at the server that knows it."""
        told = {
            json.dumps(provider(case, form)): told_of(rig.kind, self._servers.with_row(rig, case).base_url)
            for case in self._cases.values()
            for form in FORMS
        }
        lines = [f"default_provider = {next(iter(told))}\n"]
        lines += [f"[providers.{name}]\n{text}" for name, text in told.items()]
        path = self._folder(f"{rig.name}-proxy") / "promptools.toml"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path


def _plain(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, **_settings())


def _settings() -> dict[str, Any]:
    # a connection for each request: a server that breaks down closes one as the next request comes
    limits = httpx.Limits(max_keepalive_connections=0)
    http = openai.DefaultHttpxClient(limits=limits)
    return {"api_key": "none", "max_retries": 0, "timeout": 60, "http_client": http}
