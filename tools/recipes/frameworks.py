"""Clients of the proxy and frameworks for Python, Node and Go, and coding agents, in the newest compatible versions."""

from __future__ import annotations

import json
import os
from pathlib import Path

from recipes.recipe import Recipe, need, run

OPENAI_3 = (
    "anthropic==2.12.0",
    "autogen-agentchat==0.7.5",
    "autogen-ext[openai]==0.7.5",
    "langchain==1.4.7",
    "langchain-anthropic==1.7.7",
    "langchain-ollama==1.1.0",
    "langchain-openai==1.7.3",
    "langgraph==1.2.22",
    "openai==3.54.0",
    "openai-agents==0.24.0",
    "pydantic-ai-slim[anthropic,openai]==2.68.0",
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

NODE_PACKAGES = {
    "@ai-sdk/anthropic": "4.0.105",
    "@ai-sdk/openai": "4.0.118",
    "@ai-sdk/openai-compatible": "3.0.92",
    "ai": "7.0.173",
    "openai": "7.57.0",
    "zod": "4.6.7",
}
OPENCODE_PACKAGE = {"opencode-ai": "1.18.33"}
CODEX_PACKAGE = {"@openai/codex": "0.169.0"}
CLAUDE_CODE_PACKAGE = {"@anthropic-ai/claude-code": "2.1.330"}
_GO = "github.com/openai/openai-go/v3@v3.96.0"


def _npm(folder: Path, packages: dict[str, str]) -> None:
    manifest = {"name": "frameworks", "private": True, "dependencies": packages}
    (folder / "package.json").write_text(json.dumps(manifest), encoding="utf-8")
    run([need("npm", "it comes with Node"), "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder])


def _finish_node(folder: Path) -> None:
    _npm(folder, NODE_PACKAGES)


def _finish_go(folder: Path) -> None:
    """Create a Go module that requires the pinned module, and compile the pinned module, which takes minutes."""
    go = need("go", "https://go.dev/dl")
    settings = os.environ | {"GOFLAGS": "-mod=mod", "GOWORK": "off"}
    (folder / "go.mod").write_text("module weather\n", encoding="utf-8")
    run([go, "-C", folder, "get", _GO], settings)
    run([go, "-C", folder, "build", _GO.partition("@")[0]], settings)


def _check_npm() -> None:
    need("node", "JavaScript's clients run on it: https://nodejs.org")
    need("npm", "it comes with Node")


def _check_go() -> None:
    need("go", "OpenAI's SDK for Go is compiled: https://go.dev/dl")


def _agent(program: str, packages: dict[str, str]) -> Recipe:
    """Return the recipe of a coding agent, a program for this machine in an npm package."""
    gives = f"node_modules/.bin/{program}"

    def finish(folder: Path) -> None:
        _npm(folder, packages)
        run([folder / gives, "--version"])

    return Recipe((), check=_check_npm, finish=finish, gives=gives, marks=(json.dumps(packages),), takes="0.4 GB")


NODE = Recipe((), check=_check_npm, finish=_finish_node, gives="node_modules", marks=(json.dumps(NODE_PACKAGES),))
OPENCODE = _agent("opencode", OPENCODE_PACKAGE)
CODEX = _agent("codex", CODEX_PACKAGE)
CLAUDE_CODE = _agent("claude", CLAUDE_CODE_PACKAGE)
GO = Recipe(
    (),
    check=_check_go,
    finish=_finish_go,
    gives="",
    marks=(_GO,),
    takes="two minutes to compile, in Go's own caches",
)
