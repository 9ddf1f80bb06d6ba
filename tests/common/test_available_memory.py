"""Available memory as the system, its control groups and the process report it."""

from __future__ import annotations

from pathlib import Path

from moonfed.available_memory import (
    Available,
    host_available,
    host_capacity,
    memory_capacity,
    peak_memory,
    resident_memory,
    total_memory,
)


def write_tree(root: Path, **files: str) -> Path:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


MEMINFO = "MemTotal:        8000 kB\nMemFree:          100 kB\nMemAvailable:    5000 kB\nHugePages_Total:       0\n"


STATUS = "Name:\tpython\nVmHWM:\t   9000 kB\nVmRSS:\t   3000 kB\nRssAnon:\t    1000 kB\nThreads:\t7\n"


def test_available_memory_includes_the_processs_own(tmp_path: Path) -> None:
    root = write_tree(tmp_path, proc__meminfo=MEMINFO, proc__self__status=STATUS)
    assert host_available(root) == (5000 + 1000) * 1024
    assert (resident_memory(root), peak_memory(root), total_memory(root)) == (3000 * 1024, 9000 * 1024, 8000 * 1024)


def test_the_tightest_control_group_decides(tmp_path: Path) -> None:
    """The group's own limit leaves 2000 − 900 + 300, the one above it 1500 − 1200 + 100."""
    root = write_tree(tmp_path, proc__meminfo=MEMINFO, proc__self__status=STATUS, proc__self__cgroup="0::/a.slice/b\n")
    for group, limit, used, file in (("a.slice/b", 2000, 900, 300), ("a.slice", 1500, 1200, 100)):
        directory = root / "sys/fs/cgroup" / group
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "memory.max").write_text(f"{limit * 1024}\n")
        (directory / "memory.current").write_text(f"{used * 1024}\n")
        (directory / "memory.stat").write_text(f"anon 5\ninactive_file {file * 1024}\nactive_file 0\n")
    (root / "sys/fs/cgroup/memory.stat").write_text("anon 5\n")  # the root has no limit
    assert host_available(root) == (400 + 1000) * 1024
    assert host_capacity(root) == 1500 * 1024
    (root / "sys/fs/cgroup/a.slice/memory.max").write_text("max\n")
    assert host_available(root) == (1400 + 1000) * 1024
    assert host_capacity(root) == 2000 * 1024


def test_the_capacity_is_the_machines_memory_whatever_is_in_use(tmp_path: Path) -> None:
    assert host_capacity(write_tree(tmp_path, proc__meminfo=MEMINFO)) == 8000 * 1024
    assert memory_capacity("cpu") == Available(host=host_capacity())


def test_a_container_sees_its_own_limit_at_the_root(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        proc__meminfo=MEMINFO,
        proc__self__status=STATUS,
        proc__self__cgroup="0::/\n",
        **{"sys__fs__cgroup__memory.max": f"{2000 * 1024}", "sys__fs__cgroup__memory.current": f"{500 * 1024}"},
    )
    assert host_available(root) == (1500 + 1000) * 1024


def test_a_system_without_proc_reports_nothing(tmp_path: Path) -> None:
    assert host_available(tmp_path) is None
    assert resident_memory(tmp_path) == 0
    assert total_memory(tmp_path) is None


def test_this_machine_reports_plausible_sizes() -> None:
    available, total = host_available(), total_memory()
    assert available is not None
    assert total is not None
    assert 0 < resident_memory() <= peak_memory()
    assert 0 < available <= 1.1 * total
