"""A real server with a scripted or a small real model, in a separate process: `python -m benchmarks.servers NAME`.

Prints `up URL MODEL` and serves until standard input closes; or prints `missing WHY` and ends. It runs with the
project's own Python, which has the dependencies of `promptools.lab`; the environment of the benchmarks lacks them.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from promptools.lab.server_process import Server

ROOT = Path(__file__).parents[1]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Longyearbyen"}}\n</tool_call>'
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Longyearbyen"}}\n```'
SLOTS = 4
"""How many requests the server with a real model answers at once. It has one thread, to leave a core for the client."""
ASK, SHORT, LONG = "What is the weather in Longyearbyen?", "Say a little.", "Say a lot."


def words(count: int) -> str:
    return " ".join(f"word{number}" for number in range(count))


@contextlib.contextmanager
def running(name: str) -> Iterator[Server | str]:
    """Run the server `name`; yield it, or the reason why it is not installed."""
    sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]
    import environments
    from rig import ollama, vllm

    from promptools.lab import llamacpp_server
    from promptools.lab.script import ScriptedReply
    from promptools.lab.weather import prompt_mode_phrase

    lines = [
        ScriptedReply(ASK, CALL),
        ScriptedReply(ASK, FENCED, setting=prompt_mode_phrase()),
        ScriptedReply(SHORT, words(20)),
        ScriptedReply(LONG, words(90)),
    ]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        folder = Path(scratch)
        match name:
            case "llama.cpp" if llamacpp_server.can_serve():
                with llamacpp_server.serve(lines, folder=folder) as server:
                    yield server
            case "llama.cpp with SmolLM2" if llamacpp_server.can_serve():
                model = Path(environments.path_of("model-smollm2"))
                with llamacpp_server.serve_file(model, folder=folder, slots=SLOTS, context=1024, threads=1) as server:
                    yield server
            case "llama.cpp" | "llama.cpp with SmolLM2":
                yield "xllamacpp is not installed in .venv: pip install 'promptools-compat[demo]'"
            case _ if not environments.is_made(name.lower()):
                yield f"`make e2e-{name.lower()}` installs it"
            case "Ollama":
                with ollama.serve(lines, folder=folder, program=environments.path_of("ollama")) as server:
                    yield server
            case _:
                installed = vllm.VllmInstallation(environments.path_of("vllm"), "")
                with vllm.serve(lines, installed=installed, folder=folder) as server:
                    yield server


if __name__ == "__main__":
    with running(sys.argv[1]) as server:
        if isinstance(server, str):
            print(f"missing {server}", flush=True)
        else:
            print(f"up {server.base_url} {server.name}", flush=True)
            sys.stdin.read()
