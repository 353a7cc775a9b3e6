"""Answers of a model's server, kept by request: what was asked once, word for word, is not asked again."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import httpx2

from promptools.lab.llamacpp_server import serve_file
from promptools.lab.server_process import cache_folder

SECONDS = 1800.0
"""Maximum time of a request: two cores read the longest prompt in minutes."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request that promptools sent, and its answer."""

    path: str
    body: Any
    status: int
    answer: Any
    seconds: float
    """How long the answer took when the server first gave it."""

    @property
    def generates(self) -> bool:
        """Whether the model was asked; else a template was only rendered."""
        return not self.path.endswith("/apply-template")

    @property
    def prompt(self) -> str:
        """The text of the prompt, as far as the request has it; in native mode, the template adds the tools."""
        messages = [each.get("content") for each in self.body.get("messages", [])]
        return "\n".join(text for text in (*messages, self.body.get("prompt")) if isinstance(text, str))

    @property
    def read_tokens(self) -> int:
        """Tokens of the prompt."""
        return int(self._answer.get("usage", {}).get("prompt_tokens", self._answer.get("tokens_evaluated", 0)))

    @property
    def written_tokens(self) -> int:
        """Tokens of the reply."""
        return int(self._answer.get("usage", {}).get("completion_tokens", self._answer.get("tokens_predicted", 0)))

    @property
    def _answer(self) -> dict[str, Any]:
        return self.answer if isinstance(self.answer, dict) else {}


class KeptAnswers(httpx2.BaseTransport):
    """A transport that returns kept answers. For any other answer, it starts the server and asks it.

    `sent` has the POST requests. Answers are kept by method, path and body, in a file for each model file and release
    of llama.cpp. Errors of the server itself (5xx) are not kept.
    """

    def __init__(self, file: Path, server: Callable[[], str]) -> None:
        """Read the answers so far; `server` returns the server's root URL, and starts it the first time."""
        self.sent: list[Sent] = []
        self.asked = 0
        """How many requests reached the server."""
        self.file = file
        self._server = server
        self._inner = httpx2.HTTPTransport()
        self._kept = {row["key"]: row for row in _rows(file)}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the kept answer, or ask the server if there is none."""
        body = request.read()
        path = request.url.raw_path.decode()
        key = hashlib.sha256(f"{request.method} {path}\n".encode() + body).hexdigest()[:32]
        row = self._kept.get(key) or self._ask(key, request, body)
        if request.method == "POST":
            self.sent.append(Sent(path, _parsed(body), row["status"], _parsed(row["body"]), row["seconds"]))
        return httpx2.Response(row["status"], headers={"content-type": row["type"]}, text=row["body"])

    def close(self) -> None:
        self._inner.close()

    def _ask(self, key: str, request: httpx2.Request, body: bytes) -> dict[str, Any]:
        address = self._server() + request.url.raw_path.decode()
        headers = {name: request.headers[name] for name in ("content-type", "user-agent") if name in request.headers}
        began = time.monotonic()
        extensions = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), SECONDS)}
        asked = httpx2.Request(request.method, address, headers=headers, content=body, extensions=extensions)
        answer = self._inner.handle_request(asked)
        answer.read()
        answer.close()
        self.asked += 1
        row = {
            "key": key,
            "status": answer.status_code,
            "type": answer.headers.get("content-type", "application/json"),
            "body": answer.text,
            "seconds": round(time.monotonic() - began, 2),
        }
        if answer.status_code < 500:
            self._kept[key] = row
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
        return row


@contextmanager
def answers_of(model: Path, *, threads: int | None = None) -> Iterator[KeptAnswers]:
    """Yield the kept answers of the model in a GGUF file, with a llama.cpp server that is started when it is needed.

    The server calls the model by the name of the file, from which promptools finds out the family, as in an app.
    """
    with ExitStack() as stack:
        starting = Lock()
        url = ""

        def server() -> str:
            nonlocal url
            with starting:  # the probes of a server come from several threads at once
                url = url or stack.enter_context(serve_file(model, name=model.stem, threads=threads)).url
            return url

        kept = KeptAnswers(file_of(model), server)
        stack.callback(kept.close)
        yield kept


def file_of(model: Path) -> Path:
    """Return the file of answers for the model in a GGUF file, in the cache folder, which outlives checkouts."""
    release = importlib.metadata.version("xllamacpp")
    folder = cache_folder() / "answers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{model.stem}-{model.stat().st_size}-xllamacpp-{release}.jsonl"


def _rows(file: Path) -> Iterable[dict[str, Any]]:
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # the last line, of a run that was killed
                continue


def _parsed(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
