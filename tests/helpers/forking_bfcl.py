"""A Python that has loaded what bfcl-eval imports, and forks for each run: to load it takes five seconds.

`forking_python` starts it and yields a program to name in place of that Python. The worker and bfcl-eval itself are
loaded in each fork, with the variables of the run; only the packages of others, among them the clients of a dozen
providers, are there already.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "bfcl_eval"
PARTS = ("_llm_response_generation", "eval_checker.eval_runner")
"""What the worker imports of the package."""
PROGRAM = f"""#!{sys.executable} -IS
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as forks:
    forks.connect(@)
    socket.send_fds(forks, [b" "], [0, 1, 2])
    forks.sendall(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode())
    forks.shutdown(socket.SHUT_WR)
    status = forks.recv(1)
sys.exit(status[0] if status else 1)
"""
"""Hands its standard streams, arguments, variables and folder to a fork, and ends with the status of that."""


@contextlib.contextmanager
def forking_python(python: str, worker: Path, folder: Path) -> Iterator[str]:
    """Yield the path of a program that runs the script `worker`, as `python` would."""
    address, program = folder / "forks", folder / "python"
    program.write_text(PROGRAM.replace("@", repr(str(address))), encoding="utf-8")
    program.chmod(0o755)
    command = [python, __file__, str(address), str(worker.parent)]
    variables = os.environ | {"BFCL_PROJECT_ROOT": str(folder)}  # where the package creates folders when it is imported
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables) as process:
        assert process.stdout is not None
        try:
            assert b"ready\n" in process.stdout, f"{python} cannot load {PACKAGE}"  # after what the packages print
            yield str(program)
        finally:
            process.terminate()


def serve_forks(address: str, folder: str) -> None:
    """Load the packages with the scripts' folder first on the path, as for them, and fork until the input ends."""
    sys.path[0] = folder
    for part in PARTS:
        importlib.import_module(f"{PACKAGE}.{part}")
    for name in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while listener in select.select([sys.stdin, listener], [], [])[0]:
            run, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                run_script(run)
                return
            run.close()


def run_script(run: socket.socket) -> None:
    """Run the script that is asked for, as a process of its own would, and tell its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(run, 1, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with run.makefile("rb") as asked:
        sys.argv, variables, folder = json.load(asked)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    status = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        run.sendall(bytes([status]))


if __name__ == "__main__":
    serve_forks(*sys.argv[1:])
