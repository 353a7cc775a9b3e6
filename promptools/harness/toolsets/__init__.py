"""Tools for agents, with the functions that run them: the tools that gpt-oss was trained on, and MCP servers' tools."""

from promptools.harness.toolsets.agent_tool import AgentTool, ToolOutput, Toolset

__all__ = ["AgentTool", "ToolOutput", "Toolset"]
