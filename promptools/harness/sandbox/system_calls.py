"""The system-call filter for bubblewrap: it blocks calls that namespaces do not confine, and fault-prone calls.

The filter is a program for the kernel's packet filter (seccomp(2)). It sees the architecture, the number and the
arguments of each call, but not the memory that arguments point to. It decides whether the call is made, or fails.

- Two kinds of calls fail with ENOSYS, as on a kernel that lacks them. Programs are prepared for this error. The first
  kind is calls for keyrings, which namespaces do not separate. The second is calls to interfaces that had many faults.
  Calls of another architecture fail in the same way, because there the same numbers stand for different calls.
- Calls that would give a file a setuid or setgid bit fail with EPERM. Mounts without setuid protect only inside the
  sandbox. Outside of it, everyone who can reach the workspace could run a shell with the bit, as the user who started
  the sandbox. `openat2` receives its mode in memory, where the filter cannot see it, so the call always fails.
  `io_uring` always fails too, because it can also open files.
- A socket can only be of a family that a network namespace confines (EAFNOSUPPORT for all others). AF_VSOCK, for
  example, leads from a virtual machine to its host in any namespace.
"""

from __future__ import annotations

import os
import platform
import stat
import struct
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from promptools.harness.sandbox.protocol import SandboxError

Instruction: TypeAlias = "tuple[int, int, int, int]"
"""An instruction of the filter: its code, the jump if true, the jump if false, and its operand. A jump is the number of
instructions that are skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A processor architecture: its id in the kernel (`audit`), and the numbers of the system calls to filter.

    System calls that always fail, and have the same number on all architectures, are in `_EVERYWHERE` instead.
    """

    audit: int
    left_out: tuple[int, ...]
    """The numbers of add_key, request_key, keyctl, bpf, perf_event_open and userfaultfd.

    The filter makes these system calls fail, whatever their arguments.
    """
    modes: dict[int, int]
    """For each call that sets a file's mode, by the call's number: the position of the mode among the arguments."""
    opens: dict[int, int]
    """For each call that may create a file, by the call's number: the position of the flags among the arguments. The
    argument after the flags is the mode."""
    sockets: tuple[int, ...]
    """The numbers of socket and socketpair."""
    second_abi: int | None = None
    """The lowest number of a second set of system calls, such as x32 on x86_64. All calls in this set fail."""


_EVERYWHERE = (425, 426, 427, 437)
"""The numbers of io_uring_setup, io_uring_enter, io_uring_register and openat2, the same on all architectures.

The filter makes these system calls fail, whatever their arguments.
"""
_FCHMODAT2 = 452
ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        left_out=(248, 249, 250, 321, 298, 323),
        # chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat
        modes={90: 1, 91: 1, 268: 2, _FCHMODAT2: 2, 85: 1, 133: 1, 259: 2},
        opens={2: 1, 257: 2},  # open, openat
        sockets=(41, 53),
        second_abi=0x40000000,
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        left_out=(217, 218, 219, 280, 241, 282),
        # fchmod, fchmodat, fchmodat2, mknodat
        modes={52: 1, 53: 2, _FCHMODAT2: 2, 33: 2},
        opens={56: 2},  # openat
        sockets=(198, 199),
    ),
}
FAMILIES = (1, 2, 10, 16)
"""The socket families that are allowed: AF_UNIX, AF_INET, AF_INET6, and AF_NETLINK, which programs need to look up
addresses. The numbers are Linux's."""

_LOAD = 0x20
_JUMP_IF_EQUAL = 0x15
_JUMP_IF_AT_LEAST = 0x35
_JUMP_IF_ANY = 0x45
"""The code of an instruction that jumps if any bit that is set in the operand is also set in the loaded value."""
_RETURN = 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ARGUMENT_BYTES = 8
_ALLOW = 0x7FFF0000
_FAIL = 0x00050000
_ENOSYS, _EPERM, _EAFNOSUPPORT = 38, 1, 97
"""Linux's error numbers. The module `errno` is not used, because it has the numbers of the system that runs this
code."""
_MISSING: Instruction = (_RETURN, 0, 0, _FAIL | _ENOSYS)
_ALLOWED: Instruction = (_RETURN, 0, 0, _ALLOW)
_CREATES = 0o100 | 0o20000000
"""The flags of open(2) that create a file: O_CREAT and __O_TMPFILE. Without them, the caller passes no mode, and the
register for the mode may hold any value."""


@contextmanager
def open_filter() -> Generator[int]:
    """Yield a file descriptor from which bwrap can read the filter for this machine. It can be read only once.

    Raises `SandboxError` if there is no filter for this architecture.
    """
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise SandboxError(
            f"the filter of system calls, without which commands could leave programs with a setuid bit, is made for"
            f" {' and '.join(ARCHITECTURES)}, and this is {platform.machine()}: use DockerSandbox"
        )
    reading, writing = os.pipe()
    try:
        os.write(writing, filter_program(architecture))  # far less than a pipe holds
        os.close(writing)
        yield reading
    finally:
        os.close(reading)


def filter_program(architecture: Architecture) -> bytes:
    """Return the filter for an architecture, as bytes that the kernel accepts."""
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, architecture.audit),
        _MISSING,
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if architecture.second_abi is not None:
        program += [(_JUMP_IF_AT_LEAST, 0, 1, architecture.second_abi), _MISSING]
    for number in (*architecture.left_out, *_EVERYWHERE):
        program += _for_call(number, [_MISSING])
    for number, place in architecture.modes.items():
        program += _for_call(number, _without_special_bits(place))
    for number, place in architecture.opens.items():
        creates = [_load_argument(place), (_JUMP_IF_ANY, 1, 0, _CREATES), _ALLOWED]
        program += _for_call(number, [*creates, *_without_special_bits(place + 1)])
    for number in architecture.sockets:
        program += _for_call(number, _with_family())
    program.append(_ALLOWED)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _for_call(number: int, block: list[Instruction]) -> Iterable[Instruction]:
    """Return instructions that run `block` for the system call `number`, and skip `block` for all other calls.

    `block` must end with an instruction that returns a verdict, so that no instruction after the block is run.
    """
    return [(_JUMP_IF_EQUAL, 0, len(block), number), *block]


def _load_argument(place: int) -> Instruction:
    """Return an instruction that loads the lower 32 bits of an argument. Modes, flags and families fit into 32 bits."""
    return (_LOAD, 0, 0, _ARGUMENTS_AT + _ARGUMENT_BYTES * place)


def _without_special_bits(place: int) -> list[Instruction]:
    refused = (_RETURN, 0, 0, _FAIL | _EPERM)
    return [_load_argument(place), (_JUMP_IF_ANY, 0, 1, stat.S_ISUID | stat.S_ISGID), refused, _ALLOWED]


def _with_family() -> list[Instruction]:
    tests = [(_JUMP_IF_EQUAL, len(FAMILIES) - place, 0, family) for place, family in enumerate(FAMILIES)]
    return [_load_argument(0), *tests, (_RETURN, 0, 0, _FAIL | _EAFNOSUPPORT), _ALLOWED]
