"""An MCP server with a stock of goods in memory; it writes each change into a file of its workspace."""

import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("stock", log_level="ERROR")
stock = {}


@server.tool()
def add(item: str, count: int) -> str:
    """Add goods to the stock."""
    if count < 1:
        raise ToolError("count must be positive")
    stock[item] = stock.get(item, 0) + count
    Path(sys.argv[1], "stock.txt").write_text(f"{item} {stock[item]}\n")
    return f"{item}: {stock[item]}"


@server.tool()
def count(item: str) -> str:
    """Return how many there are."""
    return f"{item}: {stock[item]}"


@server.tool()
def clear() -> str:
    """Remove everything."""
    stock.clear()
    return "cleared"


server.run()
