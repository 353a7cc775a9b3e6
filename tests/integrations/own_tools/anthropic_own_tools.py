"""Anthropic's runner of tools with those that Anthropic defines and the app runs: bash, the text editor, the memory."""

import subprocess
import tempfile
from pathlib import Path

import anthropic
from anthropic.lib.tools import BetaBuiltinFunctionTool
from anthropic.tools.memory import BetaLocalFilesystemMemoryTool
from fruit import EDITS, QUESTIONS, read_notes
from weather_tool import KEY, TURNS


class Bash(BetaBuiltinFunctionTool):
    """Runs commands in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def to_dict(self):
        return {"type": "bash_20250124", "name": "bash"}

    def call(self, input):  # noqa: A002 - the SDK's own name
        return subprocess.run(
            input["command"], shell=True, cwd=self.folder, capture_output=True, text=True, check=True
        ).stdout


class Editor(BetaBuiltinFunctionTool):
    """Creates files in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def to_dict(self):
        return {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 10_000}

    def call(self, input):  # noqa: A002 - the SDK's own name
        assert input["command"] == "create"
        (self.folder / input["path"]).write_text(input["file_text"], encoding="utf-8")
        return f"Wrote {input['path']}"


def messages(address, model, stream):
    with (
        anthropic.Anthropic(base_url=address, api_key=KEY, max_retries=0) as client,
        tempfile.TemporaryDirectory() as name,
    ):
        folder = Path(name)
        (folder / "fruit.txt").write_text(f"{EDITS}\n", encoding="utf-8")
        runner = client.beta.messages.tool_runner(
            model=model,
            max_tokens=1000,
            max_iterations=TURNS,
            messages=[{"role": "user", "content": QUESTIONS[EDITS]}],
            tools=[Bash(folder), Editor(folder), BetaLocalFilesystemMemoryTool(str(folder))],
            stream=stream,
        )
        for turn in runner:
            last = turn.get_final_message() if stream else turn
        text = "".join(block.text for block in last.content if block.type == "text")
        kept = (folder / "memories" / "fruit.md").read_text(encoding="utf-8")
        return [text, read_notes(folder), kept]


WAYS = {"messages": messages}
