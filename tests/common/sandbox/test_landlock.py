"""Landlock's rules as they are handed to kernels of each version; test_policy.py asks this kernel to enforce them."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from moonfed.sandbox import landlock
from moonfed.sandbox.landlock import landlock_version, restrict_files

READ_FILE, READ_DIR, WRITE_FILE, EXECUTE = 1 << 2, 1 << 3, 1 << 1, 1
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
VERSION_1 = (1 << 13) - 1  # linux/landlock.h


class Kernel:
    """A kernel with some version of Landlock, which records the rules."""

    def __init__(self, version: int) -> None:
        self.version, self.restricted = version, False
        self.handled, self.network, self.scopes, self.size = 0, 0, 0, 0
        self.rules: dict[str, int] = {}

    def call(self, number: int, *arguments: Any) -> int:
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
    """Make this process appear single-threaded, and keep its privileges."""
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
    assert rules[str(tmp_path / "out")] == READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE, "it creates no files"
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

    def call(number: int, *arguments: Any) -> int:
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


def test_each_half_of_the_sandbox_gives_up_new_privileges_itself() -> None:
    """Each may be used alone, and without that only root's processes get rules or filters."""
    code = (
        "import ctypes\n"
        "from moonfed.sandbox import landlock, seccomp\n"
        "{}\n"
        "print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))"  # PR_GET_NO_NEW_PRIVS
    )
    for half in ("landlock.restrict_files([], [])", "seccomp.deny_system_calls()"):
        command = [sys.executable, "-I", "-c", code.format(half)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == "1\n", half + done.stderr


# Attempts by name, with the version of Landlock that denies them.
ATTEMPTS = {
    "read": (1, "(here / 'secret').read_text()"),
    "list": (1, "os.listdir(here)"),
    "write": (1, "os.open(here / 'secret', os.O_WRONLY)"),
    "write what may be read": (1, "os.open(here / 'in' / 'data', os.O_WRONLY)"),
    "create": (1, "(here / 'new').write_text('x')"),
    "create where it may read": (1, "(here / 'in' / 'new').write_text('x')"),
    "create where it may write": (1, "(here / 'out' / 'new').write_text('x')"),
    "rename where it may write": (1, "os.rename(here / 'out' / 'allowed', here / 'out' / 'new')"),
    "delete where it may write": (1, "(here / 'out' / 'allowed').unlink()"),
    "create without writing": (1, "os.mknod(here / 'new')"),
    "delete": (1, "(here / 'in' / 'data').unlink()"),
    "delete a directory": (1, "(here / 'empty').rmdir()"),
    "make a directory": (1, "(here / 'out' / 'directory').mkdir()"),
    "make a link": (1, "(here / 'out' / 'link').symlink_to('/etc/passwd')"),
    "make a pipe": (1, "os.mkfifo(here / 'out' / 'pipe')"),
    "make a character device": (1, "os.mknod(here / 'out' / 'null', stat.S_IFCHR, os.makedev(1, 3))"),
    "make a block device": (1, "os.mknod(here / 'out' / 'disk', stat.S_IFBLK, os.makedev(7, 0))"),
    "make a socket": (1, "socket.socket(socket.AF_UNIX).bind(str(here / 'out' / 'socket'))"),
    "start a program": (1, "subprocess.run(['/bin/true'])"),
    "start what may be read": (1, "subprocess.run([here / 'in' / 'program'])"),
    "link": (1, "os.link(here / 'in' / 'data', here / 'out' / 'data')"),
    "move": (1, "os.rename(here / 'secret', here / 'out' / 'secret')"),
    "truncate": (3, "os.truncate(here / 'in' / 'data', 0)"),
    "connect": (4, "socket.socket().connect(('127.0.0.1', port))"),
    "listen": (4, "socket.socket().bind(('127.0.0.1', 0))"),
    "control a device": (5, "fcntl.ioctl(open('/dev/null'), termios.TCGETS)"),
    "signal": (6, "os.kill(os.getppid(), 0)"),
    "connect by name": (6, "socket.socket(socket.AF_UNIX).connect(name)"),
}
PROGRAM = """
import fcntl, json, os, socket, stat, subprocess, sys, termios
from pathlib import Path
from moonfed.sandbox.landlock import restrict_files
from moonfed.sandbox.policy import interpreter_files
here, port, name = Path(sys.argv[1]), int(sys.argv[2]), chr(0) + sys.argv[3]
attempts = json.loads(sys.argv[4])
libraries = map(Path, ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/null"))
restrict_files([*interpreter_files(), *libraries, here / "in", here / "absent"], [here / "out"])
found = {}
for attempt, code in attempts.items():
    try:
        exec(code)
        found[attempt] = "done"
    except OSError as error:
        found[attempt] = type(error).__name__ if isinstance(error, PermissionError) else str(error.strerror)
(here / "out" / "allowed").write_text("x")
print(json.dumps(found))
"""


def test_a_failure_is_an_error_and_not_ignored(tmp_path: Path) -> None:
    """Otherwise, a plan would run unrestricted."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from moonfed.sandbox import landlock, privileges, seccomp\n"
        "def failed(module, name, call, *arguments):\n"
        "    before = getattr(module, name)\n"
        "    setattr(module, name, 9999)  # the kernel knows no such call or operation\n"
        "    try: call(*arguments)\n"
        "    except OSError: print(name)\n"
        "    setattr(module, name, before)\n"
        "for name in ('_CREATE_RULESET', '_ADD_RULE', '_RESTRICT_SELF'):\n"
        "    failed(landlock, name, landlock.restrict_files, [Path(sys.argv[1])], [])\n"
        "failed(seccomp, '_SET_MODE_FILTER', seccomp.deny_system_calls)\n"
        "failed(landlock, '_PR_SET_NO_NEW_PRIVS', landlock.no_new_privileges)\n"
        "failed(privileges, '_VERSION', privileges.drop_privileges)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "_CREATE_RULESET", "_ADD_RULE", "_RESTRICT_SELF", "_SET_MODE_FILTER", "_PR_SET_NO_NEW_PRIVS", "_VERSION"
    ]  # fmt: skip


@pytest.mark.skipif(landlock_version() < 1, reason="needs Landlock")
def test_each_right_is_given_up(tmp_path: Path) -> None:
    for name in ("in", "out", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret").write_text("a key")
    (tmp_path / "out" / "allowed").touch()
    (tmp_path / "in" / "data").write_text("a sample")
    (tmp_path / "in" / "program").write_text("#!/bin/sh\n")
    (tmp_path / "in" / "program").chmod(0o755)
    attempts = {name: code for name, (version, code) in ATTEMPTS.items() if version <= landlock_version()}
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        named.bind(f"\0{tmp_path}")
        named.listen()
        arguments = [str(tmp_path), str(listening.getsockname()[1]), str(tmp_path), json.dumps(attempts)]
        command = [sys.executable, "-I", "-c", PROGRAM, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(attempts, "PermissionError")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["allowed"]
    assert (tmp_path / "out" / "allowed").read_text() == "x"
