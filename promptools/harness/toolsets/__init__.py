"""Tools for agents, with the functions that run them: those that gpt-oss was trained on, and those of MCP servers."""

from promptools.harness.toolsets.agent_tool import AgentTool, ToolOutput, Toolset

__all__ = ["AgentTool", "ToolOutput", "Toolset"]
