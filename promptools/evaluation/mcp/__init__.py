"""Tasks over the tools of MCP servers, with checks of what came of them."""

from promptools.evaluation.mcp.mcp_solver import McpSolver
from promptools.evaluation.mcp.mcp_task_file import McpTask, read_mcp_tasks

__all__ = ["McpSolver", "McpTask", "read_mcp_tasks"]
