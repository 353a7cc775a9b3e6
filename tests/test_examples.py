"""Every example runs to its end, as a reader would run it, and says what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from promptools.lab.llamacpp_server import can_serve

pytestmark = pytest.mark.exhaustive

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "async_client": ['get_weather {"city": "Paris"}', "It is 18 °C in Paris"],
    "drop_in": ['call:   get_weather {"city": "Paris"}', "answer: It is 18 °C in Paris"],
    "fallback": ["straight: Error code: 500", "headers: harmony 2", "headers: harmony 1", "native mode was skipped"],
    "ollama_client": [
        "models: gpt-oss",
        "get_weather {'city': 'Paris'}",
        "answer: It is 18 °C in Paris",
        "pull:   501 'pull' needs an Ollama server",
    ],
    "parse_only": ["'city': 'Oslo', 'days': 3", "coerce '3' to 3", "malformed: invalid_arguments"],
    "ppxai_config": ["team-vllm: Qwen/Qwen3-32B", "in prompt mode"],
    "streaming": [
        "The user wants weather",
        'call: get_weather({"city": "Paris"})',
        "finish: tool_calls",
        "(2 replies)",
    ],
}
ALONE = {"parse_only"}
"""Those that need no server."""


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_it_runs(name: str, tmp_path: Path) -> None:
    if name not in ALONE and not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "error"}
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, env=env, capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stderr
    for words in SAYS[name]:
        assert words in done.stdout
