"""Tools for agents, with the functions that run them: gpt-oss' in-distribution tools, patches, Python, MCP servers."""

from promptools.harness.toolsets.agent_tool import AgentTool, ToolOutput, Toolset

__all__ = ["AgentTool", "ToolOutput", "Toolset"]
