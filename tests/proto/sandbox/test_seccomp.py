"""The filter of system calls as a program, run by an interpreter of its few instructions."""

from __future__ import annotations

import os
import struct

import pytest

from moonfed.sandbox import seccomp
from moonfed.sandbox.seccomp import ABSENT, DENIED, conditions, deny_system_calls, seccomp_available

COLUMNS = {"x86_64": 0, "aarch64": 1}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, EPERM, ENOSYS, KILLED = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
NEEDED = {"x86_64": (0, 1, 3, 9, 11, 202, 231), "aarch64": (57, 63, 64, 93, 98, 215, 222)}  # such as read


class Filter:
    """An interpreter of classic BPF over struct seccomp_data; see Documentation/networking/filter.rst."""

    def __init__(self, machine: str) -> None:
        self.machine, self._program = machine, list(seccomp._program(machine))

    def __call__(self, number: int, *arguments: int, architecture: int | None = None) -> int:
        """Return the action for a call."""
        values = (*arguments, *(0,) * (6 - len(arguments)))
        data = struct.pack("IIQ6Q", number, architecture or ARCHITECTURES[self.machine], 0, *values)
        position, accumulator = 0, 0
        while True:
            code, if_true, if_false, value = struct.unpack("HBBI", self._program[position])
            position += 1
            if code == 0x20:  # load a word
                accumulator = struct.unpack_from("I", data, value)[0]
            elif code == 0x54:  # and
                accumulator &= value
            elif code == 0x05:  # jump
                position += value
            elif code == 0x06:  # return
                return int(value)
            else:
                holds = {0x15: accumulator == value, 0x35: accumulator >= value}[code]
                position += if_true if holds else if_false

    def call(self, name: str, *arguments: int) -> int:
        """Return the action for a call that has conditions."""
        number = conditions(os.getpid())[name].numbers[COLUMNS[self.machine]]
        assert number is not None
        return self(number, *arguments)


@pytest.fixture(params=COLUMNS)
def filtered(request: pytest.FixtureRequest) -> Filter:
    return Filter(request.param)


def listed(machine: str) -> list[int]:
    """The numbers of every call that the filter knows."""
    tables = [*DENIED.values(), *ABSENT.values(), *(each.numbers for each in conditions(1).values())]
    return [number for numbers in tables if (number := numbers[COLUMNS[machine]]) is not None]


def test_exactly_the_listed_calls_are_denied(filtered: Filter) -> None:
    column, known = COLUMNS[filtered.machine], listed(filtered.machine)
    for table, action in ((DENIED, EPERM), (ABSENT, ENOSYS)):
        numbers = {numbers[column] for numbers in table.values()} - {None}
        assert {filtered(number or 0) for number in numbers} == {action}
    others = set(range(1000)) - set(known)
    assert {filtered(number) for number in others} == {ALLOWED}
    assert others >= set(NEEDED[filtered.machine])


def test_each_number_belongs_to_one_call(filtered: Filter) -> None:
    known = listed(filtered.machine)
    assert len(known) == len(set(known))


def test_calls_of_another_architecture_end_the_process(filtered: Filter) -> None:
    for architecture in {0x40000003, 1, *ARCHITECTURES.values()} - {ARCHITECTURES[filtered.machine]}:
        assert filtered(0, architecture=architecture) == KILLED


@pytest.mark.parametrize("number", [0x40000000, 0x40000000 + 41, 0xFFFFFFFF])
def test_calls_of_the_x32_interface_are_denied(number: int, filtered: Filter) -> None:
    assert filtered(number) == EPERM


def test_threads_may_be_started_and_processes_not(filtered: Filter) -> None:
    assert filtered.call("clone", 0x003D0F00) == ALLOWED  # as pthread_create does
    assert filtered.call("clone", 0x01200011) == EPERM  # as fork does


def test_only_this_process_may_be_signalled_or_limited(filtered: Filter) -> None:
    me = os.getpid()
    assert [filtered.call("tgkill", pid) for pid in (me, me + 1, 0)] == [ALLOWED, EPERM, EPERM]
    assert [filtered.call("prlimit64", pid) for pid in (0, me, 1)] == [ALLOWED, EPERM, EPERM]


@pytest.mark.parametrize("command", [8, 10, 15])  # F_SETOWN, F_SETSIG, F_SETOWN_EX
def test_a_file_may_not_send_signals(command: int, filtered: Filter) -> None:
    assert filtered.call("fcntl", 3, command) == EPERM
    assert filtered.call("fcntl", 3, 1) == ALLOWED


def test_the_bond_with_the_parent_stays(filtered: Filter) -> None:
    assert filtered.call("prctl", 1, 0) == EPERM  # PR_SET_PDEATHSIG
    assert filtered.call("prctl", 15) == ALLOWED  # PR_SET_NAME


def test_a_file_may_not_be_emptied_by_reading_it(filtered: Filter) -> None:
    calls = [("openat", (3, 0))] + ([("open", (0,))] if filtered.machine == "x86_64" else [])
    for name, before in calls:
        truncate, write_only = os.O_TRUNC, os.O_WRONLY
        assert filtered.call(name, *before, truncate) == EPERM
        assert filtered.call(name, *before, truncate | os.O_CLOEXEC) == EPERM
        assert filtered.call(name, *before, truncate | write_only | os.O_CREAT) == ALLOWED
        assert filtered.call(name, *before, os.O_RDONLY) == ALLOWED


def test_the_upper_half_of_an_argument_does_not_hide_the_lower(filtered: Filter) -> None:
    """The kernel reads these arguments as 32 bits, whatever is above them."""
    assert filtered.call("fcntl", 3, (1 << 32) | 8) == EPERM
    assert filtered.call("prctl", (1 << 32) | 1) == EPERM


def test_an_unknown_architecture_is_an_error_and_not_a_silent_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert not seccomp_available()
    with pytest.raises(OSError, match="seccomp: the architecture 'riscv64' is not supported"):
        deny_system_calls()
