"""The coding agents: how each is run without a person, and without anything but the server that is named."""

import json
import os
import subprocess
from pathlib import Path

import environments
from models import AGENTS
from pages import blocks
from programs import ROOT, SECONDS, environment

PAGE = ROOT / "docs" / "tasks" / "frameworks.md"
PROXY = "http://127.0.0.1:8100/v1"
"""Where the page has its proxy."""
MODEL = "gpt-oss-20b"


def ask(name: str, address: str, folder: Path) -> str:
    """Ask an agent its question in `folder`; return all that it prints."""
    command, variables = COMMANDS[name](environments.path_of(name), address, folder)
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


def codex(program: Path, address: str, folder: Path) -> tuple[list[str | Path], dict[str, str]]:
    """Codex CLI with its own tools, but for goals; its long instructions are replaced."""
    home = folder / ".codex"
    home.mkdir(exist_ok=True)
    (home / "instructions.md").write_text("Answer the question.", encoding="utf-8")
    (home / "config.toml").write_text(
        f"""
model = "{MODEL}"
model_provider = "local"
model_instructions_file = "{home}/instructions.md"

[model_providers.local]
name = "local"
base_url = "{address}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

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


def claude_code(program: Path, address: str, folder: Path) -> tuple[list[str | Path], dict[str, str]]:
    """Claude Code with two tools and a short prompt."""
    flags = ["--tools", "Read", "--system-prompt", "Answer the question.", "--no-session-persistence"]
    variables = {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "DISABLE_AUTOUPDATER": "1",
    }
    return [program, "--print", *flags, "--"], variables


def opencode(program: Path, address: str, folder: Path) -> tuple[list[str | Path], dict[str, str]]:
    """opencode as on the page on frameworks, with one tool and a short prompt."""
    (config,) = (block.text for block in blocks(PAGE) if block.saved == "opencode.json")
    (folder / "opencode.json").write_text(config.replace(PROXY, f"{address}/v1"), encoding="utf-8")
    only = {"*": False, "read": True}
    short = {"tools": only, "agent": {"build": {"prompt": "Answer the question.", "tools": only}}}
    variables = {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "OPENCODE_CONFIG_CONTENT": json.dumps(short),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
    return [program, "run"], variables


COMMANDS = {"codex": codex, "claude-code": claude_code, "opencode": opencode}
