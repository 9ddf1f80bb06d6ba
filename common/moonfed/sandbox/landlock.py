"""Landlock: a process gives up access to TCP and to all files except those below named paths. Linux 5.13 and later.

See linux/landlock.h and Documentation/userspace-api/landlock.rst. The rules apply to the calling thread and everything
that it starts, and cannot be lifted; so the process must not have other threads yet.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on all of moonfed's architectures
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG = (1 << bit for bit in range(4, 9))
_MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(9, 13))
_REFER, _TRUNCATE, _IOCTL_DEVICE = (1 << bit for bit in range(13, 16))  # from versions 2, 3 and 5
_FIRST_VERSION = _MAKE_SYM * 2 - 1  # all rights of version 1

_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _TRUNCATE  # of files that exist: a process that creates others could fill the disk
_DEVICE = _READ | _WRITE_FILE | _IOCTL_DEVICE
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE  # the others are for directories
_TCP = 3  # bind and connect, from version 4
_SCOPES = 3  # abstract sockets and signals of processes outside, from version 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """Return the kernel's version of Landlock; 0 if it has none, or it is disabled."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(_CREATE_RULESET, None, 0, _VERSION_FLAG))


def restrict_files(read: Iterable[Path], write: Iterable[Path], devices: Iterable[Path] = ()) -> None:
    """Deny TCP, execution, and files outside `read` and `write`; paths that do not exist are skipped.

    No file can be created or deleted, not even below `write`. `devices` may also be controlled by ioctl. Raises OSError
    if the kernel has no Landlock, RuntimeError if this process has other threads, which would be exempt.
    """
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    if threads > 1:
        raise RuntimeError(f"the sandbox must start before other threads do, and there are {threads}")
    version = landlock_version()
    handled = _FIRST_VERSION | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    handled |= _IOCTL_DEVICE if version >= 5 else 0
    ruleset = _Ruleset(handled, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    descriptor = _checked(_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    try:
        for paths, rights in ((read, _READ), (write, _WRITE), (devices, _DEVICE)):
            for path in paths:
                _allow(descriptor, path, rights & handled)
        no_new_privileges()
        _checked(_RESTRICT_SELF, descriptor, 0)
    finally:
        os.close(descriptor)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        allowed = rights if path.is_dir() else rights & _FILE_RIGHTS
        _checked(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(_PathRule(allowed, parent)), 0)
    finally:
        os.close(parent)


def no_new_privileges() -> None:
    """Set no_new_privs: execution grants no privileges. Otherwise the kernel accepts neither rules nor filters."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")


def _checked(number: int, *arguments: object) -> int:
    result = _call(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result


def _call(number: int, *arguments: object) -> int:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return int(function(ctypes.c_long(number), *arguments))
