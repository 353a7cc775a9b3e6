"""Tools that agents run: each with its function. gpt-oss' in-distribution tools, patches, Python, MCP servers."""

from promptools.toolsets.agent_tool import AgentTool, Toolset
from promptools.toolsets.tool_output import ToolOutput

__all__ = ["AgentTool", "ToolOutput", "Toolset"]
