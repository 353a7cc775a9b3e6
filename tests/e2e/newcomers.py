"""Ask each server as a client that has never asked it before: no failure of another test has closed a mode for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import asking
import openai
from asking import Form, Got, Proxies
from configs import config_of, told_of

from promptools.client import OpenAI
from promptools.fallback import Breaker
from promptools.lab.server_process import Server

Way = Literal["client", "proxy"]
WAYS: tuple[Way, ...] = ("client", "proxy")

_PROVIDERS = 400
"""More than there are requests to one server in a session."""


class Newcomers:
    """One client and one proxy for each server; new in every request is what they remember of failures."""

    def __init__(self, kind: str, proxies: Proxies, folder: Callable[[str], Path]) -> None:
        self._kind, self._proxies, self._folder = kind, proxies, folder
        self._inside: dict[str, OpenAI] = {}
        self._before: dict[str, openai.OpenAI] = {}
        self._asked: dict[str, int] = {}

    def ask(self, server: Server, way: Way, form: Form, *said: str | dict[str, Any], **keys: Any) -> Got:
        """Ask with a trace; `options` are keys of the request's `promptools` key."""
        messages = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
        options = {"trace": True, **keys.pop("options", {})}
        if way == "client":
            client: openai.OpenAI = self.inside(server).with_options(breaker=Breaker())
        else:
            client = self.before(server)
            number = self._asked[server.url] = self._asked.get(server.url, 0) + 1
            options["provider"] = f"p{number}"
        extra = {"promptools": options, **keys.pop("extra_body", {})}
        return asking.ask(client, server.name, messages, form, extra_body=extra, **keys)

    def inside(self, server: Server) -> OpenAI:
        """Return the client with our transport."""
        if server.url not in self._inside:
            self._inside[server.url] = OpenAI(
                base_url=server.base_url,
                provider=self._kind,
                config=config_of(self._kind, server.base_url),
                api_key="none",
                max_retries=0,
                timeout=300,
            )
        return self._inside[server.url]

    def before(self, server: Server) -> openai.OpenAI:
        """Return the client of a proxy that knows the server as one provider for each request."""
        if server.url not in self._before:
            told = told_of(self._kind, server.base_url)
            providers = "\n".join(f"[providers.p{number}]\n{told}" for number in range(_PROVIDERS))
            path = self._folder("newcomers") / "promptools.toml"
            path.write_text(f'default_provider = "p0"\n{providers}', encoding="utf-8")
            url = self._proxies.configured(path)
            self._before[server.url] = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=300)
        return self._before[server.url]

    def close(self) -> None:
        for client in (*self._inside.values(), *self._before.values()):
            client.close()
