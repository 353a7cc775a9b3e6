"""Draw the plots of docs/tasks/discover-tools.md: `promptools discover` on a scripted model, whose rates are known.

python tools/discovery_plots.py

The server is a real llama.cpp. The model is not real: the script below says what it calls for which prompt.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from promptools.cli import main as promptools
from promptools.lab.llamacpp_server import serve
from promptools.lab.script import ScriptedReply
from promptools.lab.weather import prompt_mode_phrase

IMAGES = Path(__file__).parents[1] / "docs" / "img"
NAMES = {"call-rates.svg": "discovered-known-rates.svg", "call-rates-by-kind.svg": "discovered-known-rates-by-kind.svg"}


def call(name: str, **arguments: object) -> str:
    """Return a call as the model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


DEFINED = ("Functions you can call", prompt_mode_phrase())
"""A phrase that only a prompt with tools has, in native mode and in prompt mode."""
CALLS = {
    "the tree": call("repo.print_tree", path=".", depth=2),
    "the files": call("repo.list_files", path="src", depth=1),
    "the source": call("repo.open_file", path="a.py", line_start=1, line_end=9),
    "the module": call("repo.open_file", file_path="b.py", line_start=3, line_end=8),
}
SCRIPT = [
    *(ScriptedReply(cue, reply) for cue, reply in CALLS.items()),
    *(ScriptedReply("the files", CALLS["the tree"], setting=phrase) for phrase in DEFINED),
    ScriptedReply("half a character", call("repo.half", **{"\ude00": "\ud83d", "emoji": "😀"})),
    ScriptedReply("the weather", "I cannot look out of the window."),
    ScriptedReply("names of all tools", "- repo.print_tree\n- repo.open_file\n- repo.delete_file"),
    *(
        ScriptedReply(f"Call the tool `{name}`", reply)
        for name, reply in (
            ("repo.print_tree", CALLS["the tree"]),
            ("repo.list_files", CALLS["the files"]),
            ("repo.open_file", CALLS["the source"]),
        )
    ),
    *(
        ScriptedReply(f"Describe the tool `{name}`", "- `path` (string): where\n- `encoding`: of the file\n- `depth`")
        for name in ("repo.print_tree", "repo.open_file")
    ),
    ScriptedReply(None, "I have nothing to say about that."),
]
SHARES = {"the tree": 7, "the files": 2, "the source": 4, "the module": 2, "the weather": 5}
"""How many of 20 intents ask for each thing."""
KINDS = {
    "the tree": "explore",
    "the files": "explore",
    "the source": "read",
    "the module": "read",
    "the weather": "other",
}


def intents(*, times: int = 1) -> str:
    """Return 20 times `times` intents as JSON Lines."""
    return "\n".join(
        json.dumps({"text": f"In project {number}, show {cue}.", "kind": KINDS[cue]})
        for cue, count in SHARES.items()
        for number in range(count * times)
    )


def discover(base_url: str, folder: Path, *, times: int = 1) -> int:
    """Run the command on the intents; return its exit status.

    It uses prompt mode, since in native mode a grammar of the server would keep the model from following its script.
    """
    (folder / "intents").write_text(intents(times=times), encoding="utf-8")
    flags = ["--intents", str(folder / "intents"), "--repeats", "1", "--questions", "1", "--mode", "prompt"]
    return promptools(["discover", "--base-url", base_url, "--output", str(folder), *flags])


def main() -> int:
    """Draw the plots."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with serve(SCRIPT, name="scripted", folder=folder / "model", slots=4) as server:
            status = discover(server.base_url, folder, times=2)
        for name, image in NAMES.items():
            shutil.copyfile(folder / name, IMAGES / image)
    return status


if __name__ == "__main__":
    sys.exit(main())
