"""Write docs/reference/integrations.md from the results of the tests with real clients: `make results-integrations`.

    python tools/integration_results.py [FILE...]

A file has one JSON object per line, each a `Row`. They are merged into tests/integrations/results.jsonl, from which the
page is generated: a client that is in none of the files keeps its rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from environments import CORE
from recipes import frameworks

HEAD = """# Real clients, alone and through promptools

<!-- made by `make results-integrations`; `make integrations` compares this page with what it sees -->

Each client offers a tool, runs the model's call, sends the result, and gets the final answer. Only instructor ends at
the call, whose arguments are its result.

The servers are real llama.cpp on scripted models whose calls it does not read. With one, its parser fails, as it does
when gpt-oss writes junk into a header. With the other, the call leaks into the text, as it does when Qwen3-Coder leaves
out a tag. "Alone" means that the client talks to the server, which has no Ollama API; "through promptools", that its
base URL is that of `promptools serve`. [Use a framework](../tasks/frameworks.md) shows how to configure each client.
"""
NOTES = """
Unless a row says otherwise, whole and streamed results are the same. An SDK's default API is in bold. Coding agents
always stream, and run with the first server only; opencode does not run alone, where it would retry for minutes.
instructor and smolagents require a call, which llama.cpp's grammar then forces, so nothing leaks.

The same suite runs OpenAI's SDK for Go, the examples of [the page on frameworks](../tasks/frameworks.md), and the
shell, patch, editor and memory tools that openai-agents, anthropic and ai run on the client.
"""
FORMS_HEAD = """
## Structured output

Each client asks for an object with a city and a number, from a server that does not enforce the format. The model
answers with the object in a code fence, with sentences around it, or with errors in its JSON. If the client requires a
tool, the model answers with the arguments alone, plain, in a fence, or with errors. The table lists the answers that
the client reads without promptools, besides those without any flaw. Through promptools all are read, from one request
each, whole and streamed. See [structured output](modes.md#structured-output).

"""
FORMS_NOTES = """
Where a client does not tell the server about the format, as with instructor's `MD_JSON`, promptools changes nothing.
"""
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "integrations.md"
KEPT = ROOT / "tests" / "integrations" / "results.jsonl"
KEPT_FORMS = KEPT.with_name("forms.jsonl")
WORKS = "works"


@dataclass(frozen=True, slots=True)
class Client:
    """A program of tests/integrations/clients, or a coding agent."""

    program: str
    kind: str
    """Python, Node or agent."""
    environment: str
    packages: dict[str, str]
    """The package of each API; the first is the client's default, if it has one."""
    has_default: bool = False
    forced: bool = False
    """Whether it demands a call."""
    retries: bool = False
    """Whether it asks a broken server again for minutes. It is then run at such a server only through promptools."""


_SAME = ("chat", "responses")
CLIENTS = (
    Client("openai_sdk", "Python", "frameworks-openai-3", dict.fromkeys(_SAME, "openai")),
    Client("anthropic_sdk", "Python", "frameworks-openai-3", {"messages": "anthropic"}),
    Client("ollama_sdk", "Python", "frameworks-openai-3", {"ollama": "ollama"}),
    Client(
        "langchain_clients",
        "Python",
        "frameworks-openai-3",
        {
            **dict.fromkeys(_SAME, "langchain-openai"),
            "messages": "langchain-anthropic",
            "ollama": "langchain-ollama",
        },
    ),
    Client(
        "pydantic_ai_models", "Python", "frameworks-openai-3", dict.fromkeys((*_SAME, "messages"), "pydantic-ai-slim")
    ),
    Client(
        "openai_agents_sdk",
        "Python",
        "frameworks-openai-3",
        dict.fromkeys(("responses", "chat"), "openai-agents"),
        True,
    ),
    Client("smolagents_model", "Python", "frameworks-openai-3", {"chat": "smolagents"}, forced=True),
    Client("autogen_model", "Python", "frameworks-openai-3", {"chat": "autogen-ext"}),
    Client("instructor_client", "Python", "frameworks-openai-2", dict.fromkeys(_SAME, "instructor"), forced=True),
    Client("litellm_sdk", "Python", "frameworks-openai-2", dict.fromkeys((*_SAME, "messages", "ollama"), "litellm")),
    Client("openai_node", "Node", "frameworks-node", dict.fromkeys(_SAME, "openai")),
    Client(
        "vercel_ai",
        "Node",
        "frameworks-node",
        {"responses": "@ai-sdk/openai", "chat": "@ai-sdk/openai-compatible", "messages": "@ai-sdk/anthropic"},
        True,
    ),
    Client("codex", "agent", "codex", {"responses": "@openai/codex"}),
    Client("claude-code", "agent", "claude-code", {"messages": "@anthropic-ai/claude-code"}),
    Client("opencode", "agent", "opencode", {"chat": "opencode-ai"}, retries=True),
)


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one client in one API and form."""

    client: str
    kind: str
    api: str
    form: str
    """`whole` or `streamed`."""
    breaking: str
    """The outcome without promptools, at the server whose parser fails."""
    leaking: str
    """The outcome without promptools, at the server that takes the call for text; empty if that was not tried."""
    through: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


class FormClient(NamedTuple):
    """A program of tests/integrations/forms."""

    program: str
    kind: str
    environment: str
    package: str


FORM_CLIENTS = (
    FormClient("openai_forms", "Python", "frameworks-openai-3", "openai"),
    FormClient("anthropic_forms", "Python", "frameworks-openai-3", "anthropic"),
    FormClient("ollama_forms", "Python", "frameworks-openai-3", "ollama"),
    FormClient("langchain_forms", "Python", "frameworks-openai-3", "langchain"),
    FormClient("pydantic_ai_forms", "Python", "frameworks-openai-3", "pydantic-ai-slim"),
    FormClient("instructor_forms", "Python", "frameworks-openai-2", "instructor"),
    FormClient("openai_node_forms", "Node", "frameworks-node", "openai"),
    FormClient("ai_sdk_forms", "Node", "frameworks-node", "ai"),
)


@dataclass(frozen=True, slots=True)
class FormRow:
    """The answers, other than a bare object, that one way to ask for structured output reads without promptools."""

    program: str
    way: str
    whole: str
    """The answers that are read, separated by commas; empty for none."""
    streamed: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


def read_forms(file: Path) -> list[FormRow]:
    """Read the rows on structured output in a file; return none if the file does not exist."""
    return [FormRow(**row) for row in _objects(file) if "way" in row]


def merge_forms(kept: Iterable[FormRow], new: Iterable[FormRow]) -> list[FormRow]:
    """Replace the rows of programs with new rows, drop those of programs that are gone; return the rest in order."""
    rows: dict[str, list[FormRow]] = {}
    for group in (kept, new):
        rows |= {program: list(own) for program, own in groupby(group, key=lambda row: row.program)}
    return [row for client in FORM_CLIENTS for row in rows.get(client.program, [])]


def forms_table(rows: Iterable[FormRow]) -> str:
    """Return the part of the page on structured output."""
    of_package = versions()
    clients = {client.program: client for client in FORM_CLIENTS}
    lines = ["| client | version | way | read alone | through promptools |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        _, kind, _, package = clients[row.program]
        name = f"{package} (Node)" if kind == "Node" else package
        told = {"whole": row.whole or "none", "streamed": row.streamed or "none"}
        alone = row.whole or "none" if row.whole == row.streamed else "; ".join(f"{k}: {v}" for k, v in told.items())
        lines.append(f"| {name} | {of_package[kind, package]} | {row.way} | {alone} | all |")
    return FORMS_HEAD + "\n".join(lines) + f"\n{FORMS_NOTES}"


def versions() -> dict[tuple[str, str], str]:
    """Return the version of each package, by the kind of client and its name."""
    pins = [pin.partition("==") for pin in (*frameworks.OPENAI_2, *frameworks.OPENAI_3, *CORE)]
    python = {("Python", name.partition("[")[0]): version for name, _, version in pins}
    node = {("Node", name): version for name, version in frameworks.NODE_PACKAGES.items()}
    programs = {**frameworks.CODEX_PACKAGE, **frameworks.CLAUDE_CODE_PACKAGE, **frameworks.OPENCODE_PACKAGE}
    return python | node | {("agent", name): version for name, version in programs.items()}


def read(file: Path) -> list[Row]:
    """Read the rows of a file; return none if the file does not exist."""
    return [Row(**row) for row in _objects(file) if "api" in row]


def _objects(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def merge(kept: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Replace rows by new ones, and drop rows of clients that are gone; return the rows in the order of `CLIENTS`."""
    rows = {(row.kind, row.client, row.api, row.form): row for row in (*kept, *new)}
    order = [
        (client.kind, package, api, form)
        for client in CLIENTS
        for api, package in client.packages.items()
        for form in ("whole", "streamed")
    ]
    return [rows[key] for key in order if key in rows]


def page(rows: Iterable[Row], forms: Iterable[FormRow]) -> str:
    """Return the page for rows that are in order."""
    of_package = versions()
    default = {(client.kind, *next(iter(client.packages.items()))) for client in CLIENTS if client.has_default}
    lines = [
        "| client | version | API | alone, where the parser fails | alone, where the call leaks | through promptools |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (kind, client, api), group in groupby(rows, key=lambda row: (row.kind, row.client, row.api)):
        both = list(group)
        name = f"{client} (Node)" if kind == "Node" and not client.startswith("@") else client
        shown = f"**{api}**" if (kind, api, client) in default else api
        cells = [_both(both, column) for column in ("breaking", "leaking", "through")]
        lines.append(f"| {' | '.join([name, of_package[kind, client], shown, *cells])} |")
    return "\n".join([HEAD, *lines]) + f"\n{NOTES}{forms_table(forms)}"


def _both(rows: list[Row], column: str) -> str:
    """Return the text that all rows have, or if they differ the text of each."""
    told = {row.form: getattr(row, column) or "not tried" for row in rows}
    if len({*told.values()}) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{form}: {text}" for form, text in told.items())


def main(files: Iterable[str]) -> None:
    paths = [Path(file) for file in files]
    new = [row for path in paths for row in read(path)]
    new_forms = [row for path in paths for row in read_forms(path)]
    rows = merge(read(KEPT), new)
    forms = merge_forms(read_forms(KEPT_FORMS), new_forms)
    for kept, all_rows in ((KEPT, rows), (KEPT_FORMS, forms)):
        kept.write_text("".join(f"{row.to_json()}\n" for row in all_rows), encoding="utf-8")
    PAGE.write_text(page(rows, forms), encoding="utf-8")
    told = f"{len(rows) + len(forms)} rows, {len({*new, *new_forms})} of them new"
    print(f"{PAGE.relative_to(ROOT)}: {told}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
