"""Landlock's rules as they are handed to kernels of each version; test_policy.py asks this kernel to enforce them."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from moonfed.sandbox import landlock
from moonfed.sandbox.landlock import landlock_version, restrict_files

READ_FILE, READ_DIR, WRITE_FILE, EXECUTE = 1 << 2, 1 << 3, 1 << 1, 1
MAKE_REG, REFER, TRUNCATE, IOCTL_DEVICE = 1 << 8, 1 << 13, 1 << 14, 1 << 15
VERSION_1 = (1 << 13) - 1  # linux/landlock.h


class Kernel:
    """A kernel with some version of Landlock, which records the rules."""

    def __init__(self, version: int) -> None:
        self.version, self.restricted = version, False
        self.handled, self.network, self.scopes, self.size = 0, 0, 0, 0
        self.rules: dict[str, int] = {}

    def call(self, number: int, *arguments: Any) -> int:  # noqa: ANN401
        if number == 444 and arguments[0] is None:
            return self.version
        if number == 444:
            ruleset = arguments[0]._obj
            self.handled, self.network, self.scopes = ruleset.files, ruleset.network, ruleset.scopes
            self.size = arguments[1]
            return os.open("/dev/null", os.O_RDONLY)
        if number == 445:
            rule = arguments[2]._obj
            self.rules[str(Path(f"/proc/self/fd/{rule.parent}").readlink())] = rule.allowed
            return 0
        assert number == 446
        self.restricted = True
        return 0


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - Path.iterdir is replaced here


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, as far as the check is concerned; nothing is given up by this process."""
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([Path("1")]))
    monkeypatch.setattr(landlock, "no_new_privileges", lambda: None)


def restricted(version: int, monkeypatch: pytest.MonkeyPatch, **paths: list[Path]) -> Kernel:
    kernel = Kernel(version)
    monkeypatch.setattr(landlock, "_call", kernel.call)
    restrict_files(**{"read": [], "write": [], **paths})
    return kernel


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("version", "handled", "network", "scopes", "size"),
    [
        (1, VERSION_1, 0, 0, 8),
        (2, VERSION_1 | REFER, 0, 0, 8),
        (3, VERSION_1 | REFER | TRUNCATE, 0, 0, 8),
        (4, VERSION_1 | REFER | TRUNCATE, 3, 0, 16),
        (5, VERSION_1 | REFER | TRUNCATE | IOCTL_DEVICE, 3, 0, 16),
        (6, VERSION_1 | REFER | TRUNCATE | IOCTL_DEVICE, 3, 3, 24),
        (9, VERSION_1 | REFER | TRUNCATE | IOCTL_DEVICE, 3, 3, 24),
    ],
)
def test_everything_that_a_kernel_can_restrict_is_restricted(
    version: int, handled: int, network: int, scopes: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = restricted(version, monkeypatch)
    assert (found.handled, found.network, found.scopes, found.size) == (handled, network, scopes, size)
    assert found.restricted
    assert found.rules == {}


@pytest.mark.usefixtures("alone")
def test_paths_get_the_rights_of_their_purpose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("libraries", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    paths = {
        "read": [tmp_path / "libraries", tmp_path / "file", tmp_path / "absent"],
        "write": [tmp_path / "out"],
        "devices": [Path("/dev/null")],
    }
    rules = restricted(5, monkeypatch, **paths).rules
    assert set(rules) == {str(tmp_path / name) for name in ("libraries", "file", "out")} | {"/dev/null"}
    assert rules[str(tmp_path / "libraries")] == READ_FILE | READ_DIR
    assert rules[str(tmp_path / "file")] == READ_FILE, "the kernel rejects rights for directories on a file"
    written = rules[str(tmp_path / "out")]
    assert written & (WRITE_FILE | MAKE_REG | TRUNCATE) == WRITE_FILE | MAKE_REG | TRUNCATE
    assert rules["/dev/null"] == READ_FILE | WRITE_FILE | IOCTL_DEVICE
    assert not any(allowed & (EXECUTE | REFER) for allowed in rules.values())


@pytest.mark.usefixtures("alone")
def test_rights_that_a_kernel_does_not_know_are_not_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    rules = restricted(1, monkeypatch, write=[tmp_path / "out"], devices=[Path("/dev/null")]).rules
    assert not any(allowed & ~VERSION_1 for allowed in rules.values())


def test_a_process_with_other_threads_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(6)
    monkeypatch.setattr(landlock, "_call", kernel.call)
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([Path("1"), Path("2")]))
    with pytest.raises(RuntimeError, match="the sandbox must start before other threads do, and there are 2"):
        restrict_files([], [])
    assert not kernel.restricted


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("failing", [444, 445, 446])
def test_a_rule_that_the_kernel_rejects_is_an_error(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, opened = Kernel(6), open_files()

    def call(number: int, *arguments: Any) -> int:  # noqa: ANN401
        if number == failing and arguments[0] is not None:
            ctypes.set_errno(errno.EPERM)
            return -1
        return kernel.call(number, *arguments)

    monkeypatch.setattr(landlock, "_call", call)
    with pytest.raises(OSError, match="Landlock: Operation not permitted"):
        restrict_files([Path("/dev/null")], [])
    assert open_files() == opened, "no descriptor is left open"


def test_a_kernel_without_landlock_has_version_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "_call", lambda *_: -1)
    assert landlock_version() == 0
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(landlock, "_call", lambda *_: 6)
    assert landlock_version() == 0
