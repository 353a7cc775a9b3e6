"""The Agents SDK's tools that OpenAI defines and the app runs: a shell, a local shell, patches, and a custom tool."""

import subprocess
import tempfile
from pathlib import Path

from agents import (
    Agent,
    ApplyPatchTool,
    CustomTool,
    LocalShellTool,
    OpenAIResponsesModel,
    Runner,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellResult,
    ShellTool,
    apply_diff,
)
from fruit import CUSTOM, LOCAL, PATCHES, QUESTIONS, read_notes
from openai import AsyncOpenAI
from weather_tool import KEY, TURNS


class Editor:
    """Writes files of a folder."""

    def __init__(self, folder):
        self.folder = folder

    def create_file(self, operation):
        path = self.folder / operation.path
        path.write_text(apply_diff("", operation.diff, mode="create"), encoding="utf-8")
        return f"Created {operation.path}"

    def update_file(self, operation):
        path = self.folder / operation.path
        path.write_text(apply_diff(path.read_text(encoding="utf-8"), operation.diff), encoding="utf-8")
        return f"Updated {operation.path}"

    def delete_file(self, operation):
        (self.folder / operation.path).unlink()
        return f"Deleted {operation.path}"


def shell_and_patches(folder):
    def execute(request):
        outputs = []
        for command in request.data.action.commands:
            done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
            outcome = ShellCallOutcome("exit", done.returncode)
            outputs.append(ShellCommandOutput(done.stdout, done.stderr, outcome, command))
        return ShellResult(outputs)

    return [ShellTool(execute), ApplyPatchTool(Editor(folder))]


def local_shell(folder):
    def execute(request):
        command = request.data.action.command
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout

    return [LocalShellTool(execute)]


def custom(folder):
    async def look_up(_, text):
        return (folder / f"{text}.txt").read_text(encoding="utf-8")

    format_ = {"type": "grammar", "syntax": "lark", "definition": "start: /[a-z]+/"}
    return [CustomTool("look_up", "Look a word up.", look_up, format_)]


def way(fruit, tools):
    async def ask(address, model, stream):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                (folder / "fruit.txt").write_text(f"{fruit}\n", encoding="utf-8")
                agent = Agent(name="fruit", model=OpenAIResponsesModel(model, client), tools=tools(folder))
                if stream:
                    result = Runner.run_streamed(agent, QUESTIONS[fruit], max_turns=TURNS)
                    async for _ in result.stream_events():
                        pass
                else:
                    result = await Runner.run(agent, QUESTIONS[fruit], max_turns=TURNS)
                return [result.final_output, read_notes(folder)]

    return ask


WAYS = {"shell": way(PATCHES, shell_and_patches), "local": way(LOCAL, local_shell), "custom": way(CUSTOM, custom)}
