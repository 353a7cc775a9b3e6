"""Run commands under limits: in bubblewrap, in Docker or, if explicitly allowed, without a sandbox.

The three kinds of sandboxes implement the protocol `Sandbox`.
"""

from promptools.harness.sandbox.bubblewrap import BubblewrapSandbox
from promptools.harness.sandbox.docker import DockerSandbox
from promptools.harness.sandbox.local import LocalSandbox
from promptools.harness.sandbox.protocol import (
    Command,
    CommandLimits,
    CommandResult,
    Sandbox,
    SandboxError,
    SandboxProcess,
)

__all__ = [
    "BubblewrapSandbox",
    "Command",
    "CommandLimits",
    "CommandResult",
    "DockerSandbox",
    "LocalSandbox",
    "Sandbox",
    "SandboxError",
    "SandboxProcess",
]
