"""Rules for a process that runs plans, and the level at which this machine can enforce them."""

from __future__ import annotations

import os
import resource
import site
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from moonfed.errors import InvalidInput, WrongState
from moonfed.sandbox.landlock import landlock_version, restrict_files
from moonfed.sandbox.seccomp import deny_system_calls, seccomp_available

Level = Literal["strict", "weak", "off"]
LEVELS: tuple[Level, ...] = ("strict", "weak", "off")
OPEN_FILES = 1024
SYSTEM_FILES = tuple(
    Path(name)
    for name in (
        "/usr", "/lib", "/lib64", "/bin", "/opt/nvidia", "/usr/local/cuda", "/etc/ld.so.cache", "/etc/localtime",
        "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/sys", "/proc/driver/nvidia", "/sys/devices",
        "/sys/fs/cgroup", "/sys/module/nvidia", "/dev/null", "/dev/zero", "/dev/urandom",
    )
)  # fmt: skip
DEVICE_FILES = tuple(Path("/dev").glob("nvidia*")) + (Path("/dev/shm"),)  # noqa: S108, RUF005 - CUDA's


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The files and resources that remain; sizes in bytes, None: unlimited."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    data: int | None = None  # private memory
    file_size: int | None = None  # of each file written
    cuda: bool = False


def available_level() -> Level:
    """Return the strictest level that this machine can enforce."""
    if landlock_version() > 0 and seccomp_available():
        return "strict"
    return "weak" if seccomp_available() else "off"


def require_level(wanted: Level) -> None:
    """Raise InvalidInput for an unknown level, WrongState if this machine can enforce only a weaker one."""
    if wanted not in LEVELS:
        raise InvalidInput(f"sandbox is {wanted!r}; it must be one of {', '.join(LEVELS)}")
    offered = available_level()
    if LEVELS.index(offered) > LEVELS.index(wanted):
        raise WrongState(
            f"this machine can enforce the sandbox only at level {offered!r}, not {wanted!r}: "
            f"{_missing()}; --sandbox {offered} trains without that protection"
        )


def _missing() -> str:
    missing = [] if landlock_version() else ["its kernel has no Landlock (5.13 and later), so plans could read files"]
    missing += [] if seccomp_available() else ["its kernel has no seccomp, so plans could open connections"]
    return " and ".join(missing)


def enter_sandbox(level: Level, policy: Policy) -> None:
    """Give up everything that the policy does not name, for good. The process must have no other threads.

    `weak` leaves out file access; `off` keeps only the resource limits.
    """
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    if policy.data is not None:
        limit(resource.RLIMIT_DATA, policy.data)
    if policy.file_size is not None:
        limit(resource.RLIMIT_FSIZE, policy.file_size)
    if level == "strict":
        devices = DEVICE_FILES if policy.cuda else ()
        restrict_files([*interpreter_files(), *SYSTEM_FILES, *policy.read], [*policy.write, *devices])
    if level in ("strict", "weak"):
        deny_system_calls()


def limit(kind: int, value: int) -> None:
    """Lower a resource limit, the hard one too; a lower one stays."""
    _, hard = resource.getrlimit(kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def interpreter_files() -> Iterable[Path]:
    """Return the directories of the interpreter and its packages, as far as they are imported from."""
    names = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *site.getsitepackages(), *sys.path}
    return sorted({Path(os.path.realpath(name)) for name in names if name and Path(name).is_absolute()})
