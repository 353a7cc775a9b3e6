"""The tools of MCP servers (the extra `mcp`)."""

from promptools.toolsets.mcp.mcp_servers import McpServers, McpTimeoutError, McpToolError
from promptools.toolsets.mcp.server_settings import HttpServer, StdioServer

__all__ = ["HttpServer", "McpServers", "McpTimeoutError", "McpToolError", "StdioServer"]
