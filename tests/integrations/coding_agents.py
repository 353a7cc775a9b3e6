"""The coding agents: how each is run without a person, and without anything but the server that is named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import environments
from models import AGENTS
from pages import blocks
from programs import ROOT, SECONDS, environment

PAGE = ROOT / "docs" / "tasks" / "frameworks.md"
PROXY = "http://127.0.0.1:8100/v1"
"""Where the page has its proxy."""
MODEL = "gpt-oss-20b"


LAUNCHED = {"codex": "codex", "claude-code": "claude", "opencode": "opencode"}
"""What `promptools launch` calls them."""


def ask(name: str, address: str, folder: Path) -> str:
    """Ask an agent its question in `folder`; return all that it prints."""
    command, variables = COMMANDS[name](environments.path_of(name), address, folder)
    return _run(name, command, variables, folder)


def launch(name: str, base_url: str, folder: Path) -> str:
    """Ask by `promptools launch`, before a server: the agent's own settings name none."""
    (program, *flags), variables = COMMANDS[name](environments.path_of(name), None, folder)
    words = ["-m", "promptools", "--quiet", "launch", base_url, LAUNCHED[name], "--model", MODEL, "--"]
    path = f"{Path(program).parent}{os.pathsep}{os.environ['PATH']}"
    return _run(name, [sys.executable, *words, *flags], {**variables, "PATH": path, "PYTHONPATH": str(ROOT)}, folder)


def _run(name: str, command: list[str | Path], variables: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        [*command, AGENTS[name].question],
        cwd=folder,
        env=environment(HOME=str(folder), PWD=str(folder), **variables),
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    return done.stdout


def codex(program: Path, address: str | None, folder: Path) -> tuple[list[str | Path], dict[str, str]]:
    """Codex CLI with its own tools, but for goals; its long instructions are replaced."""
    server = "" if address is None else _CODEX_SERVER.format(model=MODEL, address=address)
    home = folder / ".codex"
    home.mkdir(exist_ok=True)
    (home / "instructions.md").write_text("Answer the question.", encoding="utf-8")
    (home / "config.toml").write_text(
        f"""
model_instructions_file = "{home}/instructions.md"
{server}
[features]
goals = false

[skills]
include_instructions = false
bundled = {{ enabled = false }}

[analytics]
enabled = false
""",
        encoding="utf-8",
    )
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--ephemeral"]
    return [program, "exec", *flags], {"CODEX_HOME": str(home)}


_CODEX_SERVER = """
model = "{model}"
model_provider = "local"

[model_providers.local]
name = "local"
base_url = "{address}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


def claude_code(program: Path, address: str | None, folder: Path) -> tuple[list[str | Path], dict[str, str]]:
    """Claude Code with two tools and a short prompt."""
    flags = ["--tools", "Read", "--system-prompt", "Answer the question.", "--no-session-persistence"]
    server = {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_MODEL": MODEL} if address else {}
    variables = {
        **server,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "DISABLE_AUTOUPDATER": "1",
    }
    return [program, "--print", *flags, "--"], variables


def opencode(program: Path, address: str | None, folder: Path) -> tuple[list[str | Path], dict[str, str]]:
    """opencode as on the page on frameworks, with one tool and a short prompt."""
    only = {"*": False, "read": True}
    short = {"tools": only, "agent": {"build": {"prompt": "Answer the question.", "tools": only}}}
    config = json.dumps(short)
    if address is not None:
        (config,) = (block.text for block in blocks(PAGE) if block.saved == "opencode.json")
    (folder / "opencode.json").write_text(config.replace(PROXY, f"{address}/v1"), encoding="utf-8")
    variables = {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        **({} if address is None else {"OPENCODE_CONFIG_CONTENT": json.dumps(short)}),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
    return [program, "run"], variables


COMMANDS = {"codex": codex, "claude-code": claude_code, "opencode": opencode}
