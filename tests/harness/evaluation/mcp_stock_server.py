"""An MCP server with a stock of goods in memory; it writes each change into a file of its workspace.

It is started for each attempt, and speaks the protocol itself: the package `mcp`, with which the servers of
`toolsets/test_mcp_servers.py` are made, takes most of a second to import.
"""

import json
import sys
from pathlib import Path

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
stock = {}


def add(item, count):
    if count < 1:
        raise ValueError("count must be positive")
    stock[item] = stock.get(item, 0) + count
    Path(sys.argv[1], "stock.txt").write_text(f"{item} {stock[item]}\n")
    return f"{item}: {stock[item]}"


def count(item):
    return f"{item}: {stock[item]}"


def clear():
    stock.clear()
    return "cleared"


TOOLS = {
    add: ("Add goods to the stock.", {"item": TEXT, "count": NUMBER}),
    count: ("Return how many there are.", {"item": TEXT}),
    clear: ("Remove everything.", {}),
}


def declared(run, description, properties):
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"name": run.__name__, "description": description, "inputSchema": schema}


def called(name, arguments):
    try:
        text, failed = {run.__name__: run for run in TOOLS}[name](**arguments), False
    except (LookupError, TypeError, ValueError) as error:
        text, failed = str(error), True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def answer(method, params):
    if method == "initialize":
        version, about = params["protocolVersion"], {"name": "stock", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [declared(run, *about) for run, about in TOOLS.items()]}
    if method == "tools/call":
        return called(params["name"], params.get("arguments") or {})
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:  # what has none is a notification
        result = answer(message["method"], message.get("params", {}))
        unknown = {"error": {"code": -32601, "message": f"there is no method {message['method']}"}}
        said = unknown if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
