"""The tools that gpt-oss was trained on: `container.exec`, `repo_browser.*` and `python`."""

from promptools.toolsets.in_distribution.observations import Observation, plain_observation, tagged_observation
from promptools.toolsets.in_distribution.python_tool import PythonSession
from promptools.toolsets.in_distribution.toolset import PythonKind, Variant, gpt_oss_tools

__all__ = [
    "Observation",
    "PythonKind",
    "PythonSession",
    "Variant",
    "gpt_oss_tools",
    "plain_observation",
    "tagged_observation",
]
