"""Run a client's program in every way that it has: `run_ways.py PROGRAM ADDRESS=MODEL...`.

A program has `WAYS`: for each API a function of the server's address, the model and whether to stream, that returns the
final answer. Its result, or how it failed, is a line of JSON on standard output.
"""

import asyncio
import importlib
import inspect
import json
import sys
import warnings

program, *servers = sys.argv[1:]
warnings.simplefilter("ignore")
module = importlib.import_module(program)


def outcome(ask, address, model, stream):
    try:
        answer = ask(address, model, stream)
        return {"answer": asyncio.run(answer) if inspect.isawaitable(answer) else answer}
    except Exception as error:  # noqa: BLE001 - however it fails, the next way is tried
        return {"error": f"{type(error).__name__}: {error}"}


for api, ask in module.WAYS.items():
    for stream in (False, True):
        for server in servers:
            address, model = server.split("=")
            # its own name of the model in each way: what the proxy learned about another way is not known here
            name = f"{model}-{program}-{api}-{'streamed' if stream else 'whole'}"
            row = {"api": api, "stream": stream, "server": server, **outcome(ask, address, name, stream)}
            print(f"\n{json.dumps(row)}", flush=True)
