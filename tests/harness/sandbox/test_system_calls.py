"""The filter of system calls, run as the kernel runs it."""

import errno
import platform
import struct

import pytest

from promptools.harness.sandbox import SandboxError
from promptools.harness.sandbox.system_calls import ARCHITECTURES, filter_program, open_filter

ALLOWED, NO_SUCH_CALL, NOT_PERMITTED, NO_SUCH_FAMILY = 0x7FFF0000, 0x00050026, 0x00050001, 0x00050061
OTHER_ARCHITECTURE = 0x40000003
SETUID, SETGID = 0o4000, 0o2000
CREATE, TEMPORARY = 0o100, 0o20000000
WITH_ARGUMENTS = {
    "x86_64": {2, 41, 53, 85, 90, 91, 133, 257, 259, 268, 452},
    "aarch64": {33, 52, 53, 56, 198, 199, 452},
}
"""Calls that fail with some arguments only."""


def verdict(program, audit, number, *arguments):
    """Run a program of the packet filter on one call; jumps are relative to the next instruction."""
    data = {0: number, 4: audit} | dict.fromkeys(range(16, 64, 8), 0)
    data |= {16 + 8 * place: value for place, value in enumerate(arguments)}
    instructions = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    holds = {0x15: int.__eq__, 0x35: int.__ge__, 0x45: lambda value, operand: bool(value & operand)}
    at = value = 0
    while True:
        code, then, otherwise, operand = instructions[at]
        at += 1
        if code == 0x20:
            value = data[operand]
        elif code == 0x06:
            return operand
        else:
            at += then if holds[code](value, operand) else otherwise


@pytest.fixture(params=ARCHITECTURES)
def call(request):
    """Return what becomes of a call on an architecture: its number and its arguments."""
    architecture = ARCHITECTURES[request.param]
    program = filter_program(architecture)

    def run(number, *arguments, audit=architecture.audit):
        return verdict(program, audit, number, *arguments)

    run.name, run.architecture = request.param, architecture
    return run


def test_the_listed_calls_fail_and_no_others(call):
    verdicts = {number: call(number) for number in range(600)}
    failing = {number for number in verdicts if verdicts[number] != ALLOWED}
    sockets = set(call.architecture.sockets)  # the family 0 is none of those that are allowed
    assert failing == {*call.architecture.left_out, 425, 426, 427, 437} | sockets
    assert {verdicts[number] for number in failing - sockets} == {NO_SUCH_CALL}
    assert call(1, audit=OTHER_ARCHITECTURE) == NO_SUCH_CALL


def test_only_the_known_calls_look_at_their_arguments(call):
    everything = [0o7777 | CREATE | TEMPORARY] * 6
    differing = {number for number in range(600) if call(number, *everything) != call(number, 2, 2, 2, 2, 2, 2)}
    assert differing == WITH_ARGUMENTS[call.name]


@pytest.mark.parametrize("bits", [SETUID, SETGID, SETUID | SETGID])
def test_no_call_sets_a_special_bit(call, bits):
    for number, place in call.architecture.modes.items():
        before = [0xFFFFFFFF] * place
        assert call(number, *before, 0o755 | bits) == NOT_PERMITTED
        assert call(number, *before, 0o100755 | bits) == NOT_PERMITTED
        assert call(number, *before, 0o1777) == ALLOWED
    for number, place in call.architecture.opens.items():
        before = [0xFFFFFFFF] * place
        for flags in (CREATE, TEMPORARY, CREATE | 1):
            assert call(number, *before, flags, 0o755 | bits) == NOT_PERMITTED
            assert call(number, *before, flags, 0o1777) == ALLOWED
        assert call(number, *before, 1, 0o755 | bits) == ALLOWED  # nothing is created: there is no mode


def test_sockets_are_of_families_that_namespaces_confine(call):
    for number in call.architecture.sockets:
        allowed = {family for family in range(100) if call(number, family) == ALLOWED}
        assert allowed == {1, 2, 10, 16}
        assert call(number, 40) == NO_SUCH_FAMILY


def test_the_second_interface_of_x86_64_is_left_out():
    program = filter_program(ARCHITECTURES["x86_64"])
    for number in (1, 41, 90):
        assert verdict(program, ARCHITECTURES["x86_64"].audit, 0x40000000 + number, 2) == NO_SUCH_CALL


def test_the_numbers_of_errors_are_those_of_linux():
    assert (errno.ENOSYS, errno.EPERM, errno.EAFNOSUPPORT) == (0x26, 0x01, 0x61)


def test_a_machine_without_a_filter_has_no_sandbox(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with (
        pytest.raises(SandboxError, match=r"x86_64 and aarch64, and this is riscv64: use DockerSandbox"),
        open_filter(),
    ):
        pass
