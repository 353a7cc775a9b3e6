"""Run a client's program in every way that it has: `run_ways.py PROGRAM ADDRESS=MODEL... [CALLS ADDRESS=MODEL...]`.

A program has `WAYS`: for each API, or other name, a function of the server's address, the model and whether to stream,
that returns the final answer; and perhaps others, which are run on the servers after their name. The result of each, or
how it failed, is a line of JSON on standard output.
"""

import asyncio
import importlib
import inspect
import json
import sys
import warnings

program, *words = sys.argv[1:]
warnings.simplefilter("ignore")
module = importlib.import_module(program)


def outcome(ask, address, model, stream):
    try:
        answer = ask(address, model, stream)
        return {"answer": asyncio.run(answer) if inspect.isawaitable(answer) else answer}
    except Exception as error:  # noqa: BLE001 - however it fails, the next way is tried
        return {"error": f"{type(error).__name__}: {error}"}


def plan():
    """Yield a way's name, its function, whether to stream, and the server."""
    servers = {kind: [] for kind in ("WAYS", *words) if "=" not in kind}
    kind = "WAYS"
    for word in words:
        if word in servers:
            kind = word
        else:
            servers[kind].append(word)
    for kind, chosen in servers.items():
        for api, ask in getattr(module, kind, {}).items():
            for stream in (False, True):
                for server in chosen:
                    yield api, ask, stream, server


for api, ask, stream, server in plan():
    address, model = server.split("=")
    # its own name of the model in each way: what the proxy learned about another way is not known here
    name = f"{model}-{program}-{api}-{'streamed' if stream else 'whole'}"
    row = {"api": api, "stream": stream, "server": server, **outcome(ask, address, name, stream)}
    print(f"\n{json.dumps(row, default=dict)}", flush=True)
