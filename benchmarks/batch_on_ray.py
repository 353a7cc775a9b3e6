"""Measure batches on a Ray cluster of two nodes on this machine: the cost of a node that dies, and the driver's memory.

    PYTHONPATH=. "$(.venv/bin/python tools/environments.py ray)" -m benchmarks.batch_on_ray requests 10000
    PYTHONPATH=. "$(.venv/bin/python tools/environments.py ray)" -m benchmarks.batch_on_ray reparse 1000000

`requests` sends to four stub servers, without Ray and with it, and kills a node in the middle. `reparse` reads logged
replies in one process and on the cluster, and compares the outputs. Files go to a temporary folder: a million replies
take 2 GB.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil

SERVERS = 4
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
REPLY = (
    "<think>The user asks for the weather in three cities, so I need one call for each of them, with days as a"
    " number.</think>I look it up.\n"
)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Longyearbyen", "days": "3"}}\n</tool_call>\n'
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("requests", "reparse"))
    parser.add_argument("count", type=int)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--actors", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, cluster() as nodes:
        folder = Path(name)
        figures = send(folder, nodes, arguments) if arguments.what == "requests" else read(folder, nodes, arguments)
    print(json.dumps({"what": arguments.what, "count": arguments.count, **figures}, indent=2))


@contextlib.contextmanager
def cluster() -> Generator[Any, None, None]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        nodes.add_node(**NODE)
        yield nodes
    finally:
        nodes.shutdown()


def send(folder: Path, nodes: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    with stub_servers() as urls, (folder / "in.jsonl").open("w", encoding="utf-8") as file:
        for number in range(arguments.count):
            messages = [{"role": "user", "content": f"What is the weather on day {number}?"}]
            body = {"model": "stub", "messages": messages, "tools": [TOOL]}
            row = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(row) + "\n")
        file.flush()
        (folder / "promptools.toml").write_text(f"[providers.four]\nbase_url = {json.dumps(urls)}\n", encoding="utf-8")
        command = ["--provider", "four", "--no-detect", "--concurrency", str(arguments.concurrency)]
        here = run(folder, ["batch", "in.jsonl", "here.jsonl", *command])
        on_ray = [*command, "--ray", nodes.address, "--actors", str(arguments.actors)]
        whole = run(folder, ["batch", "in.jsonl", "whole.jsonl", *on_ray])
        log = folder / "killed.jsonl.part"
        killed = run(folder, ["batch", "in.jsonl", "killed.jsonl", *on_ray], lambda: kill_at_half(nodes, log, whole))
    outputs = [answers(folder / name) for name in ("here.jsonl", "whole.jsonl", "killed.jsonl")]
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(outputs[0]) == arguments.count
    return {"without_ray": here, "on_ray": whole, "on_ray_with_a_node_killed": killed}


def kill_at_half(nodes: Any, log: Path, whole: dict[str, Any]) -> bool:
    """End the second node once half of the log is written; return whether the node was ended."""
    if not log.exists() or log.stat().st_size < whole["output_bytes"] / 2:
        return False
    (second,) = nodes.worker_nodes
    nodes.remove_node(second, allow_graceful=False)
    return True


def read(folder: Path, nodes: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    with (folder / "in.jsonl").open("w", encoding="utf-8") as file:
        for number in range(arguments.count):
            row = {"id": number, "text": REPLY + CALL * (number % 4) + f"Day {number}.", "tools": [TOOL]}
            file.write(json.dumps(row) + "\n")
    one = run(folder, ["reparse", "in.jsonl", "one.jsonl", "--workers", "1"])
    on_ray = run(folder, ["reparse", "in.jsonl", "whole.jsonl", "--ray", nodes.address])
    digests = [digest(folder / name) for name in ("one.jsonl", "whole.jsonl")]
    assert digests[0] == digests[1]
    return {
        "input_bytes": (folder / "in.jsonl").stat().st_size,
        "one_process": one,
        "on_ray": on_ray,
        "same_bytes": True,
    }


def run(folder: Path, arguments: list[str], act: Any = None) -> dict[str, Any]:
    """Run a command to its end; return its seconds and the memory of its process, sampled while it runs.

    `act` is called again and again until it returns true.
    """
    started = time.monotonic()
    process = psutil.Popen([sys.executable, "-m", "promptools", *arguments], cwd=folder, env=environment())
    samples, acted = [], act is None
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            memory = process.memory_info()
            samples.append((memory.rss - memory.shared) / 2**20)
        acted = acted or act()
        time.sleep(0.1)
    assert process.returncode == 0, process.returncode
    assert acted
    half = samples[: max(1, len(samples) // 2)]
    return {
        "seconds": round(time.monotonic() - started, 1),
        "peak_mib": round(max(samples)),
        "peak_mib_of_first_half": round(max(half)),
        "output_bytes": (folder / arguments[2]).stat().st_size,
    }


@contextlib.contextmanager
def stub_servers() -> Generator[list[str], None, None]:
    script = Path(__file__).with_name("stub.py")
    servers = [
        subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(SERVERS)
    ]
    try:
        yield [f"http://127.0.0.1:{server.stdout.readline().strip()}/v1" for server in servers if server.stdout]
    finally:
        for server in servers:
            server.kill()
            server.wait()


def answers(path: Path) -> dict[str, Any]:
    """Return the call for each custom_id; raise if a custom_id occurs twice."""
    known: dict[str, Any] = {}
    with path.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            assert row["custom_id"] not in known, row["custom_id"]
            known[row["custom_id"]] = row["response"]["body"]["choices"][0]["message"]["tool_calls"][0]["function"]
    return known


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def environment() -> dict[str, str]:
    root = str(Path(__file__).parents[1])
    return {**os.environ, "PYTHONPATH": root}


if __name__ == "__main__":
    main()
