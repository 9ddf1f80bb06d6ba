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

from moonfed.errors import InvalidInput
from moonfed.sandbox.landlock import landlock_version, restrict_files
from moonfed.sandbox.privileges import drop_privileges
from moonfed.sandbox.seccomp import deny_system_calls, seccomp_available

Level = Literal["strict", "weak", "off"]
LEVELS: tuple[Level, ...] = ("strict", "weak", "off")
OPEN_FILES = 1024
# Not all of /proc/self: through fd/, a process could reopen read-only files for writing.
SYSTEM_FILES = tuple(
    Path(name)
    for name in (
        "/usr", "/lib", "/lib64", "/bin", "/opt/nvidia", "/etc/ld.so.cache", "/etc/localtime",
        "/proc/self/status", "/proc/self/stat", "/proc/self/cgroup", "/proc/self/maps", "/proc/cpuinfo",
        "/proc/meminfo", "/proc/sys", "/sys/devices", "/sys/fs/cgroup", "/dev/null", "/dev/zero", "/dev/urandom",
    )
)  # fmt: skip
# Additional paths for CUDA, from NVIDIA's documentation.
CUDA_FILES = tuple(
    Path(name)
    for name in (
        "/proc/driver/nvidia", "/proc/devices", "/proc/modules", "/sys/module/nvidia", "/sys/module/nvidia_uvm",
        "/sys/bus/pci", "/etc/nv_tegra_release", "/etc/nvidia-container-runtime",
    )
)  # fmt: skip
# Where the driver names its threads while it starts; it fails if it cannot. Only this process's own threads are there.
CUDA_WRITES = (Path("/proc/self/task"),)
CUDA_DEVICES = ("nvidia*", "nvhost*", "nvmap", "nvgpu", "dri")  # patterns in /dev; the last four are a Jetson's


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Permitted files and resources; sizes in bytes, None: unlimited. Paths that do not exist are skipped."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()  # files that exist
    private: tuple[Path, ...] = ()  # not to be read, although a directory above may be one of libraries
    data: int | None = None  # private memory
    addresses: int | None = None  # of all memory, also of what is shared, and of the kernel's tables of it
    file_size: int | None = None  # of each file written
    cuda: bool = False  # including its devices


def available_level() -> Level:
    """Return the strictest level that this machine can enforce."""
    if landlock_version() > 0 and seccomp_available():
        return "strict"
    return "weak" if seccomp_available() else "off"


def parse_level(text: str) -> Level:
    """Return the level of that name; InvalidInput if there is none."""
    for level in LEVELS:
        if level == text:
            return level
    raise InvalidInput(field="sandbox", value=text, allowed="'strict', 'weak' or 'off'")


def require_level(wanted: Level) -> None:
    """Raise InvalidInput for a level that this machine cannot enforce."""
    offered = available_level()
    if LEVELS.index(offered) > LEVELS.index(wanted):
        allowed = " or ".join(map(repr, LEVELS[LEVELS.index(offered) :]))
        raise InvalidInput(field="sandbox", value=wanted, allowed=f"{allowed} on this machine, because {_missing()}")


def _missing() -> str:
    missing = [] if landlock_version() else ["its kernel has no Landlock (Linux 5.13), so plans could read any file"]
    missing += [] if seccomp_available() else ["its kernel has no seccomp, so plans could open connections"]
    return " and ".join(missing)


def require_unreadable(path: Path) -> None:
    """Raise InvalidInput if processes in the sandbox could read a path, such as one below /usr."""
    above = next((root for root in SYSTEM_FILES if path.resolve().is_relative_to(root.resolve())), None)
    if above is not None:
        raise InvalidInput(field="state", value=path, allowed=f"outside {above}, which plans may read")


def enter_sandbox(level: Level, policy: Policy) -> None:
    """Permanently give up everything that the policy does not name. The process must have no other threads.

    `weak` does not restrict access to files; `off` only limits resources.
    """
    confine_files(level, policy)
    confine_process(level, policy)


def confine_files(level: Level, policy: Policy) -> None:
    """Restrict files: the first half, before any import that starts threads, which would remain unrestricted.

    Privileges belong to single threads, too: the superuser's process gives them up here.
    """
    if level in ("strict", "weak"):
        drop_privileges()
    if level == "strict":
        devices = [path for pattern in CUDA_DEVICES for path in Path("/dev").glob(pattern)] if policy.cuda else []
        system = [*SYSTEM_FILES, *(CUDA_FILES if policy.cuda else ())]
        written = [*policy.write, *(CUDA_WRITES if policy.cuda else ())]
        # A directory above what is written may hold the device's state, though libraries may be there too.
        hidden = [path.resolve() for path in (*policy.write, *policy.private)]
        libraries = [path for path in interpreter_files() if not any(each.is_relative_to(path) for each in hidden)]
        restrict_files([*libraries, *system, *policy.read], written, devices)


def confine_process(level: Level, policy: Policy) -> None:
    """Restrict system calls and resources in all threads: the second half."""
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    if policy.data is not None:
        limit(resource.RLIMIT_DATA, policy.data)
    if policy.addresses is not None:
        limit(resource.RLIMIT_AS, policy.addresses)
    if policy.file_size is not None:
        limit(resource.RLIMIT_FSIZE, policy.file_size)
    if level in ("strict", "weak"):
        deny_system_calls(policy.cuda)


def limit(kind: int, value: int) -> None:
    """Lower a resource limit, the hard one too; a lower one stays."""
    _, hard = resource.getrlimit(kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def interpreter_files() -> Iterable[Path]:
    """Return the directories of the interpreter's libraries and of `sys.path`, but not its whole prefix.

    A prefix may hold the device's state: that of a virtual environment in the working directory, for example.
    """
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    libraries = {str(Path(prefix, name)) for prefix in prefixes for name in ("lib", "lib64", "pyvenv.cfg")}
    named = (sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    names = {*libraries, *named, *site.getsitepackages(), *sys.path}
    return sorted({Path(os.path.realpath(name)) for name in names if name and Path(name).is_absolute()})
