"""The filter of system calls for bubblewrap: it leaves out parts of the kernel that commands do not need.

Those are the keyrings, which namespaces do not separate, and interfaces that had many faults. Their calls fail as on a
kernel without them (ENOSYS), which programs are prepared for. The filter is a program of the kernel's packet filter
(seccomp(2)): it sees the architecture and the number of each call, and returns what becomes of it.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple


class _Architecture(NamedTuple):
    """The kernel's id of an architecture, and its numbers of the calls that differ between architectures."""

    audit: int
    calls: tuple[int, ...]
    second_abi: int | None = None
    """From which number on calls belong to a second interface, which is left out whole."""


_IO_URING = (425, 426, 427)
"""io_uring_setup, io_uring_enter, io_uring_register: everywhere."""
ARCHITECTURES = {
    # add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd
    "x86_64": _Architecture(0xC000003E, (248, 249, 250, 321, 298, 323), second_abi=0x40000000),
    "aarch64": _Architecture(0xC00000B7, (217, 218, 219, 280, 241, 282)),
}

_LOAD = 0x20
_JUMP_IF_EQUAL = 0x15
_JUMP_IF_AT_LEAST = 0x35
_RETURN = 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_ALLOW = 0x7FFF0000
_FAIL = 0x00050000 | errno.ENOSYS


@contextmanager
def open_filter() -> Generator[int | None]:
    """Open the filter for this machine and yield the descriptor, to be read once; None where there is no filter."""
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        yield None
        return
    reading, writing = os.pipe()
    try:
        os.write(writing, filter_program(architecture))  # far less than a pipe holds
        os.close(writing)
        yield reading
    finally:
        os.close(reading)


def filter_program(architecture: _Architecture) -> bytes:
    """Return the program: calls of other architectures and the listed ones fail, all others are allowed."""
    numbers = (*architecture.calls, *_IO_URING)
    tests = [(_JUMP_IF_EQUAL, number) for number in numbers]
    if architecture.second_abi is not None:
        tests.insert(0, (_JUMP_IF_AT_LEAST, architecture.second_abi))
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, _FAIL),
        (_LOAD, 0, 0, _NUMBER_AT),
        # each jumps over the tests after it, and over the permission
        *((code, len(tests) - place, 0, value) for place, (code, value) in enumerate(tests)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
