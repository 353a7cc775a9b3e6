"""The frameworks of docs/tasks/frameworks.md, in the newest compatible versions: two sets for Python, Node's, Go's."""

from __future__ import annotations

import json
import os
from pathlib import Path

from recipes.recipe import Recipe, need, run

OPENAI_3 = (
    "autogen-agentchat==0.7.5",
    "autogen-ext[openai]==0.7.5",
    "langchain==1.4.7",
    "langchain-openai==1.7.3",
    "langgraph==1.2.22",
    "openai==3.54.0",
    "openai-agents==0.24.0",
    "pydantic-ai-slim[openai]==2.68.0",
    "smolagents==1.26.0",
)
OPENAI_2 = (
    "instructor==1.17.0",
    "litellm==1.106.2",
    "llama-index-core==0.14.25",
    "llama-index-llms-openai-like==0.8.1",
    "mcp==2.3.0",  # litellm's completion() imports it and does not require it
    "openai==2.54.0",
)

_NODE = {"@ai-sdk/openai-compatible": "3.0.92", "ai": "7.0.173", "zod": "4.6.7"}
_OPENCODE = {"opencode-ai": "1.18.33"}
_GO = "github.com/openai/openai-go/v3@v3.96.0"


def _npm(folder: Path, packages: dict[str, str]) -> None:
    manifest = {"name": "frameworks", "private": True, "dependencies": packages}
    (folder / "package.json").write_text(json.dumps(manifest), encoding="utf-8")
    run([need("npm", "it comes with Node"), "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder])


def _finish_node(folder: Path) -> None:
    _npm(folder, _NODE)


def _finish_opencode(folder: Path) -> None:
    _npm(folder, _OPENCODE)
    run([folder / "node_modules" / ".bin" / "opencode", "--version"])


def _finish_go(folder: Path) -> None:
    """Create a module that requires the pinned one, and compile that, which takes minutes."""
    go = need("go", "https://go.dev/dl")
    settings = os.environ | {"GOFLAGS": "-mod=mod", "GOWORK": "off"}
    (folder / "go.mod").write_text("module weather\n", encoding="utf-8")
    run([go, "-C", folder, "get", _GO], settings)
    run([go, "-C", folder, "build", _GO.partition("@")[0]], settings)


def _check_npm() -> None:
    need("node", "the Vercel AI SDK runs on it: https://nodejs.org")
    need("npm", "it comes with Node")


def _check_go() -> None:
    need("go", "OpenAI's SDK for Go is compiled: https://go.dev/dl")


NODE = Recipe((), check=_check_npm, finish=_finish_node, gives="node_modules", marks=(json.dumps(_NODE),))
OPENCODE = Recipe(
    (),
    check=_check_npm,
    finish=_finish_opencode,
    gives="node_modules/.bin/opencode",
    marks=(json.dumps(_OPENCODE),),
    takes="0.4 GB",
)
GO = Recipe(
    (),
    check=_check_go,
    finish=_finish_go,
    gives="",
    marks=(_GO,),
    takes="two minutes to compile, in Go's own caches",
)
