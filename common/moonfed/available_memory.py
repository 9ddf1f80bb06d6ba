"""Memory still available to this process: the machine's, its control group's, its accelerator's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
KIBIBYTE = 1024  # what /proc counts in


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """Bytes that this process holds or can allocate without swapping; None: unknown."""

    host: int | None
    accelerator: int | None = None  # also None without an accelerator, or if it shares the host's memory
    shared: bool = False  # whether there is one memory for both, as on a Jetson


def available_memory(accelerator: str) -> Available:
    """Return the memory available to local training on `cpu` or `cuda`; only the latter imports torch."""
    host = host_available()
    if accelerator == "cpu":
        return Available(host=host)
    import torch

    if torch.cuda.get_device_properties(0).is_integrated:
        return Available(host=host, shared=True)
    free, _ = torch.cuda.mem_get_info()
    return Available(host=host, accelerator=free + torch.cuda.memory_reserved())


def memory_capacity(accelerator: str) -> Available:
    """Return the memory of this device, used or not: what a round may take at best."""
    host = host_capacity()
    if accelerator == "cpu":
        return Available(host=host)
    import torch

    properties = torch.cuda.get_device_properties(0)
    if properties.is_integrated:
        return Available(host=host, shared=True)
    return Available(host=host, accelerator=properties.total_memory)


def host_capacity(root: Path = ROOT) -> int | None:
    """Return the bytes of host memory: the minimum of the machine's and the process's control group limits."""
    limits = [limit for directory in _own_groups(root) if (limit := _number(directory / "memory.max")) is not None]
    return min((size for size in (total_memory(root), *limits) if size is not None), default=None)


def host_available(root: Path = ROOT) -> int | None:
    """Return the available bytes of host memory, including this process's own.

    The minimum of MemAvailable and the remainder of the process's control group limits (cgroup v2). Both count page
    cache as available, so only the process's anonymous memory is added.
    """
    free = [size for size in (_machine_available(root), *_cgroup_available(root)) if size is not None]
    return min(free) + held_memory(root, "RssAnon") if free else None


def resident_memory(root: Path = ROOT) -> int:
    """Return this process's resident bytes, libraries included; 0 if unknown."""
    return held_memory(root, "VmRSS")


def peak_memory(root: Path = ROOT) -> int:
    """Return the peak memory of this process in bytes; 0 if unknown.

    Unlike getrusage's figure, it excludes the process that started this program.
    """
    return held_memory(root, "VmHWM")


def held_memory(root: Path, kind: str) -> int:
    """Return one of the sizes in /proc/self/status; 0 if there is none."""
    return fields(root / "proc/self/status").get(kind, 0)


def total_memory(root: Path = ROOT) -> int | None:
    """Return the machine's memory in bytes."""
    return fields(root / "proc/meminfo").get("MemTotal") or _all_pages(root)


def fields(file: Path) -> dict[str, int]:
    """Return the sizes in a file of lines such as `MemTotal:  8000 kB`, in bytes; nothing if there is no such file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines if line.endswith(" kB"))
    return {name: KIBIBYTE * int(value.split()[0]) for name, _, value in pairs}


def _machine_available(root: Path) -> int | None:
    return fields(root / "proc/meminfo").get("MemAvailable")


def _all_pages(root: Path) -> int | None:
    if root != ROOT:
        return None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _cgroup_available(root: Path) -> Iterator[int]:
    """Return the bytes that each cgroup limit leaves, from the process's own group to the topmost visible one."""
    for directory in _own_groups(root):
        limit, used = _number(directory / "memory.max"), _number(directory / "memory.current")
        if limit is not None and used is not None:
            yield max(0, limit - used + _file_pages(directory / "memory.stat"))


def _own_groups(root: Path) -> Iterator[Path]:
    """Return the directories of the process's own group and of those above it."""
    group = _own_group(root)
    while group is not None:
        yield root / "sys/fs/cgroup" / group
        group = None if group == Path() else group.parent


def _own_group(root: Path) -> Path | None:
    """Return the group's path relative to the mount; None without cgroup v2, whose line begins with 0::."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    return next((Path(line.removeprefix("0::").strip("/")) for line in lines if line.startswith("0::")), None)


def _number(file: Path) -> int | None:
    """Return the number in a file; None if it contains `max` or does not exist."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _file_pages(stat: Path) -> int:
    """Return a cgroup's bytes of page cache, which the kernel can reclaim."""
    try:
        pairs = (line.split() for line in stat.read_text().splitlines())
    except OSError:
        return 0
    return sum(int(value) for name, value in pairs if name in ("inactive_file", "active_file"))
