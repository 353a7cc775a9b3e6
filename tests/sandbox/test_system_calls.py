"""The filter of system calls, run as the kernel runs it."""

import struct

import pytest

from promptools.sandbox.system_calls import ARCHITECTURES, filter_program

ALLOWED, NO_SUCH_CALL = 0x7FFF0000, 0x00050026
OTHER_ARCHITECTURE = 0x40000003


def verdict(program, audit, number):
    """Run a program of the packet filter on one call; jumps are relative to the next instruction."""
    data = {0: number, 4: audit}
    instructions = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = value = 0
    while True:
        code, then, otherwise, operand = instructions[at]
        at += 1
        if code == 0x20:
            value = data[operand]
        elif code == 0x06:
            return operand
        else:
            at += then if (value == operand if code == 0x15 else value >= operand) else otherwise


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_listed_calls_fail_and_no_others(name):
    architecture = ARCHITECTURES[name]
    program = filter_program(architecture)
    failing = {number for number in range(600) if verdict(program, architecture.audit, number) != ALLOWED}
    assert failing == {*architecture.calls, 425, 426, 427}
    assert {verdict(program, architecture.audit, number) for number in failing} == {NO_SUCH_CALL}
    assert verdict(program, OTHER_ARCHITECTURE, 1) == NO_SUCH_CALL


def test_the_second_interface_of_x86_64_is_left_out():
    program = filter_program(ARCHITECTURES["x86_64"])
    assert verdict(program, ARCHITECTURES["x86_64"].audit, 0x40000001) == NO_SUCH_CALL
