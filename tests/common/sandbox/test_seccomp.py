"""The filter of system calls as a program, run by an interpreter of its few instructions."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import struct
import subprocess
import sys

import pytest

from moonfed.sandbox import seccomp
from moonfed.sandbox.seccomp import ABSENT, CUDA_CALLS, DENIED, conditions, deny_system_calls, seccomp_available

COLUMNS = {"x86_64": 0, "aarch64": 1}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, IGNORED, EPERM, ENOSYS, KILLED = 0x7FFF0000, 0x00050000, 0x00050001, 0x00050026, 0x80000000
NEEDED = {"x86_64": (0, 1, 3, 11, 202, 231), "aarch64": (57, 63, 64, 93, 98, 215)}  # such as read


class Filter:
    """An interpreter of classic BPF over struct seccomp_data; see Documentation/networking/filter.rst."""

    def __init__(self, machine: str, cuda: bool = False) -> None:
        self.machine, self._cuda = machine, cuda
        self._program = list(seccomp._program(machine, cuda))

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
        number = conditions(os.getpid(), self._cuda)[name].numbers[COLUMNS[self.machine]]
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


def test_only_this_process_may_be_pinned_to_cores(filtered: Filter) -> None:
    me = os.getpid()
    pids = (0, me, me + 1, 1, 0xFFFFFFFF)
    assert [filtered.call("sched_setaffinity", pid) for pid in pids] == [ALLOWED] * 2 + [IGNORED] * 3


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


@pytest.mark.parametrize("access", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
@pytest.mark.parametrize("more", [0, os.O_TRUNC, os.O_CLOEXEC | os.O_EXCL])
def test_no_file_without_a_name_may_be_created(access: int, more: int, filtered: Filter) -> None:
    """Landlock allows them, and a process may have many open."""
    calls = [("openat", (3, 0))] + ([("open", (0,))] if filtered.machine == "x86_64" else [])
    for name, before in calls:
        assert filtered.call(name, *before, os.O_TMPFILE | access | more) == EPERM
        assert filtered.call(name, *before, os.O_DIRECTORY | os.O_RDONLY) == ALLOWED


SHARED, PRIVATE, ANONYMOUS, FIXED, GROWSDOWN = 0x1, 0x2, 0x20, 0x10, 0x100  # linux/mman.h
IMMUTABLE = (0x40086602, 0x40046602, 0x401C5820)  # FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR
OTHER_IOCTLS = (
    0x40087602, 0x800C6613, 0x40806685, 0xC0045877, 0x40049409,  # version, encryption, verity, freezing, cloning
)  # fmt: skip


@pytest.mark.parametrize("more", [0, FIXED, 0x4000])  # MAP_NORESERVE
def test_memory_that_no_limit_counts_may_not_be_mapped(more: int, filtered: Filter) -> None:
    def mapped(flags: int) -> int:
        return filtered.call("mmap", 0, 1 << 30, 3, flags | more, 0xFFFFFFFF, 0)

    assert mapped(PRIVATE | ANONYMOUS) == mapped(PRIVATE) == mapped(SHARED) == ALLOWED
    assert mapped(SHARED | ANONYMOUS) == mapped(SHARED | PRIVATE | ANONYMOUS) == EPERM
    assert mapped(PRIVATE | ANONYMOUS | GROWSDOWN) == mapped(PRIVATE | GROWSDOWN) == EPERM


@pytest.mark.parametrize("machine", COLUMNS)
@pytest.mark.parametrize("cuda", [False, True])
def test_a_file_may_not_be_made_immutable(cuda: bool, machine: str) -> None:
    filtered = Filter(machine, cuda)
    for command in (*IMMUTABLE, *OTHER_IOCTLS):
        assert filtered.call("ioctl", 3, command) == filtered.call("ioctl", 3, 1 << 32 | command) == EPERM
    assert filtered.call("ioctl", 3, 0x5451) == ALLOWED  # FIOCLEX, by which Python lets no child inherit a file
    assert filtered.call("ioctl", 3, 0xC020462A) == (ALLOWED if cuda else EPERM)  # one of NVIDIA's


def test_the_upper_half_of_an_argument_does_not_hide_the_lower(filtered: Filter) -> None:
    """The kernel reads these arguments as 32 bits, whatever is above them."""
    assert filtered.call("fcntl", 3, (1 << 32) | 8) == EPERM
    assert filtered.call("prctl", (1 << 32) | 1) == EPERM


@pytest.mark.parametrize("machine", COLUMNS)
def test_on_cuda_a_process_may_listen_locally_and_nothing_more(machine: str) -> None:
    filtered, column = Filter(machine, cuda=True), COLUMNS[machine]
    for family in socket.AddressFamily:
        assert filtered.call("socket", family) == (ALLOWED if family == socket.AF_UNIX else EPERM)
    permitted = {DENIED[name][column] for name in CUDA_CALLS} - {DENIED["socket"][column]}
    assert {filtered(number or 0) for number in permitted} == {ALLOWED}
    others = {numbers[column] for numbers in DENIED.values()} - permitted - {None}
    assert {filtered(number or 0) for number in others} == {EPERM}


def test_an_unknown_architecture_is_an_error_and_not_a_silent_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert not seccomp_available()
    with pytest.raises(OSError, match="seccomp: the architecture 'riscv64' is not supported"):
        deny_system_calls()


FILTERED = pytest.mark.skipif(not seccomp_available(), reason="this kernel has no seccomp")
# Functions of the C library, which knows the calls' numbers itself.
WRAPPED = """
    socket socketpair connect bind listen accept accept4 sendto sendmsg sendmmsg execve ptrace process_vm_readv
    process_vm_writev kill setsid setpgid mount umount2 chroot unshare setns init_module delete_module reboot swapon
    swapoff acct quotactl sethostname klogctl open_by_handle_at personality modify_ldt iopl ioperm memfd_create mkdir
    mkdirat chmod chown lchown fchownat symlink symlinkat fchmod fchown setxattr lsetxattr fsetxattr removexattr
    lremovexattr fremovexattr truncate link linkat inotify_init inotify_init1 fanotify_init shmget shmctl shmat semget
    semop semtimedop msgget msgctl msgrcv msgsnd setpriority sched_setscheduler sched_setparam
"""
FUNCTIONS = WRAPPED.split()
# Calls without such a function, or with one that looks at its arguments first, by the numbers of linux/unistd.h on
# x86-64 and on 64-bit ARM.
NUMBERS: dict[str, tuple[int, int | None]] = {
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "kcmp": (312, 272), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440), "tkill": (200, 130),
    "execveat": (322, 281), "pivot_root": (155, 41), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsmount": (432, 432), "mount_setattr": (442, 442), "finit_module": (313, 273),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "settimeofday": (164, 170), "memfd_secret": (447, 447), "setuid": (105, 146),
    "setgid": (106, 144), "setresuid": (117, 147), "setresgid": (119, 149), "clock_settime": (227, 112),
    "fchmodat": (268, 53), "mknod": (133, None), "mknodat": (259, 33), "fork": (57, None), "vfork": (58, None),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "ioprio_set": (251, 30),
    "sched_setattr": (314, 274), "mq_open": (240, 180), "mq_unlink": (241, 181), "open_tree_attr": (467, 467),
    "semctl": (66, 191), "fspick": (433, 433), "fsconfig": (431, 431), "quotactl_fd": (443, 443), "io_setup": (206, 0),
    "fchmodat2": (452, 452), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattrat": (463, 463), "removexattrat": (466, 466), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "file_setattr": (469, 469),
}  # fmt: skip
NAMES = {"klogctl": "syslog"}
# The number of the process, by the call of 32-bit programs: 20, eax = 20; int 0x80; ret.
MACHINE_CODE = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
FILTER = "from moonfed.sandbox.seccomp import deny_system_calls; deny_system_calls()\n"


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def errors_of_calls(functions: list[str], numbers: dict[str, int]) -> dict[str, int]:
    """Return the error number of each call, with nothing but -1 for arguments, in a filtered process."""
    code = FILTER + (
        "import ctypes, json, sys\n"
        "library, given = ctypes.CDLL(None, use_errno=True), [ctypes.c_long(-1)] * 6\n"
        "def error(function, *arguments):\n"
        "    ctypes.set_errno(0)\n"
        "    return ctypes.get_errno() if function(*arguments) == -1 else 0\n"
        "functions, numbers = map(json.loads, sys.argv[1:])\n"
        "found = {name: error(getattr(library, name), *given) for name in functions}\n"
        "found |= {name: error(library.syscall, ctypes.c_long(number), *given) for name, number in numbers.items()}\n"
        "print(json.dumps(found))"
    )
    done = run(code, json.dumps(functions), json.dumps(numbers))
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@FILTERED
def test_calls_are_denied_by_whatever_name_they_are_known() -> None:
    library = ctypes.CDLL(None)
    functions = [name for name in FUNCTIONS if hasattr(library, name)]
    assert len(functions) > len(FUNCTIONS) - 8, "some exist on one architecture or in one library only"
    column = ("x86_64", "aarch64").index(platform.machine())
    found = errors_of_calls(
        functions, {name: number for name, both in NUMBERS.items() if (number := both[column]) is not None}
    )
    assert {name: error for name, error in found.items() if error != 1} == {}  # EPERM


def test_each_call_of_the_table_is_tested() -> None:
    assert {NAMES.get(name, name) for name in FUNCTIONS} | NUMBERS.keys() == DENIED.keys()
    assert {name: DENIED[name] for name in NUMBERS} == NUMBERS, "those of the other architecture, too"


@FILTERED
@pytest.mark.skipif(platform.machine() != "x86_64", reason="32-bit calls of x86-64")
def test_a_call_of_a_32_bit_program_ends_the_process() -> None:
    """Its system call numbers differ, so the filter would misinterpret them."""
    code = (
        "import ctypes, mmap\n"
        "memory = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)\n"
        f"memory.write({MACHINE_CODE!r})\n"
        "call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))\n"
    )
    if run(code + "print(call())").returncode:
        pytest.skip("this kernel has no 32-bit calls")
    assert run(FILTER + code + "print(call())").returncode == -signal.SIGSYS
