"""Commands under bounds: one protocol, carried out by bubblewrap, by Docker, or, if explicitly allowed, unconfined."""

from promptools.sandbox.bubblewrap import BubblewrapSandbox
from promptools.sandbox.command_limits import CommandLimits
from promptools.sandbox.docker import DockerSandbox
from promptools.sandbox.local import LocalSandbox
from promptools.sandbox.protocol import Command, CommandResult, Sandbox, SandboxError, SandboxProcess

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
