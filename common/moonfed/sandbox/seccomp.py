"""Seccomp: a process gives up system calls that training never needs, in all of its threads.

The filter is a BPF program (linux/filter.h, linux/seccomp.h). A listed call fails with EPERM; a call of another
architecture kills the process. Some calls are permitted only with certain arguments. The process can start threads, but
no other process.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from moonfed.sandbox.landlock import no_new_privileges

_SECCOMP: Mapping[str, int] = {"x86_64": 317, "aarch64": 277}
_AUDIT_ARCHITECTURE: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SET_MODE_FILTER = 1
# In all threads, and with the processor's speculation left on, which kernels before 5.16 restrict in filtered
# processes. That would protect a process's memory from its own code, but nothing in this process is secret from a plan.
_FLAGS = 1 | 4
_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_IGNORED, _EPERM, _ENOSYS = 0, 1, 38  # error numbers; with 0 a call does nothing and seems to succeed
_X32_BIT = 0x40000000  # numbers above are the x32 calls of an x86-64 kernel

_LOAD_WORD = 0x20
_JUMP_ALWAYS = 0x05
_JUMP_EQUAL = 0x15
_JUMP_GREATER_EQUAL = 0x35
_RETURN = 0x06
_AND = 0x54
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALL_BITS = 0xFFFFFFFF
# Of ioctl: descriptors' flags, and whether one is a terminal. Others change files, file systems and terminals.
_IOCTLS = (0x5401, 0x5450, 0x5451, 0x5421, 0x541B)  # TCGETS, FIONCLEX, FIOCLEX, FIONBIO, FIONREAD
# Those of file systems: attributes such as immutable (FS_IOC_SETFLAGS, its 32-bit form, FS_IOC_FSSETXATTR), versions
# (FS_IOC_SETVERSION and its 32-bit form), encryption, verity, labels, freezing, trimming and clones of files.
_FILE_SYSTEM_IOCTLS = (
    0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40047602, 0x800C6613, 0x40806685, 0x41009432, 0xC0045877,
    0xC0045878, 0xC0185879, 0x40049409, 0x4020940D, 0xC0189436,
)  # fmt: skip
Numbers = tuple[int | None, int | None]  # on x86-64 and on 64-bit ARM; None where the call does not exist

DENIED: Mapping[str, Numbers] = {
    # network
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    # other programs and processes
    "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "process_madvise": (440, 440), "kill": (62, 129), "tkill": (200, 130),
    "setsid": (112, 157), "setpgid": (109, 154), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "fork": (57, None), "vfork": (58, None), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
    # memory and messages that survive the process or belong to others
    "shmget": (29, 194), "shmctl": (31, 195), "shmat": (30, 196), "semget": (64, 190), "semctl": (66, 191),
    "semop": (65, 193), "semtimedop": (220, 192), "msgget": (68, 186), "msgctl": (71, 187), "msgrcv": (70, 188),
    "msgsnd": (69, 189), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # the kernel, its modules, keys and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsmount": (432, 432), "mount_setattr": (442, 442), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "sethostname": (170, 161), "syslog": (103, 116),
    "open_by_handle_at": (304, 265), "personality": (135, 92), "modify_ldt": (154, None), "iopl": (172, None),
    "ioperm": (173, None), "memfd_create": (319, 279), "memfd_secret": (447, 447), "open_tree_attr": (467, 467),
    "fspick": (433, 433), "fsconfig": (431, 431), "quotactl_fd": (443, 443), "io_setup": (206, 0),
    # links to other files, and files that are hard to delete
    "mkdir": (83, None), "mkdirat": (258, 34),
    "chmod": (90, None), "fchmodat": (268, 53), "chown": (92, None), "lchown": (94, None), "fchownat": (260, 54),
    "setuid": (105, 146), "setgid": (106, 144), "setresuid": (117, 147), "setresgid": (119, 149),
    "mknod": (133, None), "mknodat": (259, 33), "symlink": (88, None), "symlinkat": (266, 36),
    # what Landlock does not cover: changes of files that the user owns, readable or not
    "fchmod": (91, 52), "fchmodat2": (452, 452), "fchown": (93, 55), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469), "truncate": (76, 45),
    "link": (86, None), "linkat": (265, 37), "inotify_init": (253, None), "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
}  # fmt: skip
# Calls with arguments in memory, which a filter cannot read; libraries fall back to the older calls.
ABSENT: Mapping[str, Numbers] = {"clone3": (435, 435), "openat2": (437, 437)}
# CUDA's driver listens on a local socket, over which processes could share memory, and fails if it cannot. Nothing
# passes through it: neither connecting, accepting nor sending is permitted. Some drivers need unnamed files in memory.
CUDA_CALLS = ("socket", "bind", "listen", "memfd_create")


class Condition(NamedTuple):
    """A call permitted by an argument: its bits in `mask` must be, or must not be, one of `values`; else `error`."""

    numbers: Numbers
    argument: int
    mask: int
    values: tuple[int, ...]
    permitted: bool  # True: they must be
    error: int = _EPERM


def denied(cuda: bool) -> Mapping[str, Numbers]:
    """Return the calls of DENIED that a process may not make, whatever their arguments."""
    return {name: numbers for name, numbers in DENIED.items() if not (cuda and name in CUDA_CALLS)}


def conditions(pid: int, cuda: bool = False) -> Mapping[str, Condition]:
    """Return the calls that a process with that id may make only with certain arguments."""
    thread, truncate, access, unnamed = 0x00010000, 0x200, 0x3, 0x400000  # CLONE_THREAD, O_TRUNC, O_ACCMODE, O_TMPFILE
    # Before Linux 6.2, Landlock allows truncation of a readable file when it is opened, and always unnamed files.
    opened = (truncate, *(unnamed | bits for bits in (0, 1, 2, 3, *(truncate | mode for mode in (0, 1, 2, 3)))))
    if cuda:  # whose driver has hundreds of ioctls, and memory without limit
        device = {
            "socket": Condition(DENIED["socket"], 0, _ALL_BITS, (socket.AF_UNIX,), True),
            "ioctl": Condition((16, 29), 1, _ALL_BITS, _FILE_SYSTEM_IOCTLS, False),
        }
    else:  # RLIMIT_DATA counts neither shared memory nor stacks
        shared, unfiled, stack = 0x1, 0x20, 0x100  # MAP_SHARED, MAP_ANONYMOUS, MAP_GROWSDOWN
        uncounted = (shared | unfiled, *(stack | bits for bits in (0, shared, unfiled, shared | unfiled)))
        device = {
            "ioctl": Condition((16, 29), 1, _ALL_BITS, _IOCTLS, True),
            "mmap": Condition((9, 222), 3, shared | unfiled | stack, uncounted, False),
        }
    return device | {
        "clone": Condition((56, 220), 0, thread, (thread,), True),
        "tgkill": Condition((234, 131), 0, _ALL_BITS, (pid,), True),  # abort() needs it
        # Another process could be pinned to one core. Threads that a library pins, as OMP_PROC_BIND asks for, have
        # numbers that a filter cannot know: they stay unpinned, because an error would keep them from starting.
        "sched_setaffinity": Condition((203, 122), 0, _ALL_BITS, (0, pid), True, _IGNORED),
        "prlimit64": Condition((302, 261), 0, _ALL_BITS, (0,), True),  # lower limits can kill another process
        "fcntl": Condition((72, 25), 1, _ALL_BITS, (8, 10, 15), False),  # F_SETOWN, F_SETSIG, F_SETOWN_EX: signals
        "prctl": Condition((157, 167), 0, _ALL_BITS, (1,), False),  # PR_SET_PDEATHSIG: it must die with its parent
        "open": Condition((2, None), 1, unnamed | truncate | access, opened, False),
        "openat": Condition((257, 56), 2, unnamed | truncate | access, opened, False),
    }


def seccomp_available() -> bool:
    """Return True if this kernel and architecture can filter system calls."""
    if sys.platform != "linux" or platform.machine() not in _SECCOMP:
        return False
    function = ctypes.CDLL(None, use_errno=True).syscall
    kill = ctypes.c_uint32(_KILL_PROCESS)  # asks whether the action is known
    return int(function(ctypes.c_long(_SECCOMP[platform.machine()]), 2, 0, ctypes.byref(kill))) == 0


def deny_system_calls(cuda: bool = False) -> None:
    """Give up the calls in `denied` and ABSENT, and those that `conditions` forbids, in all threads.

    Raises OSError if the kernel or the architecture does not support it.
    """
    machine = platform.machine()
    if machine not in _SECCOMP:
        raise OSError(f"seccomp: the architecture {machine!r} is not supported")
    no_new_privileges()
    library = ctypes.CDLL(None, use_errno=True)
    program = _program(machine, cuda)
    buffer = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    number = ctypes.c_long(_SECCOMP[machine])
    if library.syscall(number, _SET_MODE_FILTER, _FLAGS, ctypes.c_char_p(header)):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _program(machine: str, cuda: bool) -> Sequence[bytes]:
    column = 0 if machine == "x86_64" else 1
    limited = conditions(os.getpid(), cuda).values()
    found = [condition for condition in limited if condition.numbers[column] is not None]
    return [
        _instruction(_LOAD_WORD, _ARCHITECTURE),
        _instruction(_JUMP_EQUAL, _AUDIT_ARCHITECTURE[machine], 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD_WORD, _NUMBER),
        _instruction(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1),
        _instruction(_RETURN, _ERRNO | _EPERM),
        *(line for condition in found for line in _tested(condition.numbers[column] or 0, condition)),
        *_returning(ABSENT, column, _ENOSYS),
        *_returning(denied(cuda), column, _EPERM),
        _instruction(_RETURN, _ALLOW),
    ]


def _returning(calls: Mapping[str, Numbers], column: int, error: int) -> Sequence[bytes]:
    """Return instructions that end with an error if the call is one of these."""
    numbers = sorted(number for each in calls.values() if (number := each[column]) is not None)
    return [
        *(_instruction(_JUMP_EQUAL, number, len(numbers) - index, 0) for index, number in enumerate(numbers)),
        _instruction(_JUMP_ALWAYS, 1),
        _instruction(_RETURN, _ERRNO | error),
    ]


def _tested(number: int, condition: Condition) -> Sequence[bytes]:
    """Return the instructions for one conditional call."""
    values = condition.values
    denied = _ERRNO | condition.error
    found, other = (_ALLOW, denied) if condition.permitted else (denied, _ALLOW)
    rest = [
        _instruction(_LOAD_WORD, _ARGUMENTS + 8 * condition.argument),  # the lower half, on both architectures
        _instruction(_AND, condition.mask),
        *(_instruction(_JUMP_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)),
        _instruction(_RETURN, other),
        _instruction(_RETURN, found),
    ]
    return [_instruction(_JUMP_EQUAL, number, 0, len(rest)), *rest]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
