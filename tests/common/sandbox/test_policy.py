"""A process inside the sandbox that attempts known attacks."""

from __future__ import annotations

import fcntl
import os
import platform
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moonfed.errors import InvalidInput
from moonfed.sandbox import policy
from moonfed.sandbox.policy import (
    CUDA_FILES,
    SYSTEM_FILES,
    available_level,
    interpreter_files,
    parse_level,
    require_level,
    require_unreadable,
)
from tests.support.refusals import refused

STRICT = pytest.mark.skipif(available_level() != "strict", reason="needs Landlock and seccomp")
FILTERED = pytest.mark.skipif(available_level() == "off", reason="this kernel has no seccomp")


# `call` makes a system call by its number, and raises PermissionError if the filter rejects it.
CALL = (
    "def call(n, *a):\n"
    "    ctypes.set_errno(0); result = ctypes.CDLL(None, use_errno=True).syscall(n, *a)\n"
    "    raise PermissionError if (result, ctypes.get_errno()) == (-1, 1) else AssertionError(result)\n"
    "from moonfed.sandbox import seccomp\n"
    "column = ('x86_64', 'aarch64').index(os.uname().machine)\n"
    "conditions = {name: each.numbers[column] for name, each in seccomp.conditions(0).items()}\n"
)


def skip_unless_available(level: str) -> None:
    if level == "strict" and available_level() != "strict":
        pytest.skip("needs Landlock")


def attempt(
    code: str, directory: Path, level: str = "strict", limits: str = "", before: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run code in a sandbox that may read `directory`/in and write what is in `directory`/out; `before` outside."""
    for name in ("in", "out"):
        (directory / name).mkdir(exist_ok=True)
    (directory / "in" / "data").write_text("a sample")
    (directory / "out" / "model").write_text("old weights, which are longer")
    (directory / "secret").write_text("a key")
    program = (
        "import ctypes, fcntl, os, resource, signal, socket, subprocess, sys\n"
        "from pathlib import Path\n"
        "from moonfed.sandbox.policy import Policy, enter_sandbox\n"
        f"here = Path({str(directory)!r})\n"
        "sys.path.append(str(here))\n"  # as the .pth file of an editable installation does
        f"{before}\n"
        f"enter_sandbox({level!r}, Policy(read=(here / 'in', here / 'absent'), write=(here / 'out',), {limits}))\n"
        f"{code}\n"
        "print('done')\n"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False, cwd=directory
    )


@STRICT
def test_work_that_training_needs_is_allowed(tmp_path: Path) -> None:
    code = (
        "assert (here / 'in' / 'data').read_text() == 'a sample'\n"
        "(here / 'out' / 'model').write_text('weights')\n"
        "import json, zipfile, threading\n"
        "thread = threading.Thread(target=print, args=('threads',)); thread.start(); thread.join()\n"
        "assert os.urandom(4) and Path('/proc/self/status').read_text()\n"
        "import numpy; numpy.ones(9).sum()"
    )
    found = attempt(code, tmp_path)
    assert found.stdout == "threads\ndone\n", found.stderr
    assert (tmp_path / "out" / "model").read_text() == "weights"


@STRICT
@pytest.mark.parametrize(
    "code",
    [
        "(here / 'secret').read_text()",
        "(here / 'out' / '..' / 'secret').read_text()",
        "os.listdir(here)",
        "Path('/etc/passwd').read_text()",
        "Path('/proc/self/root/etc/passwd').read_text()",
        "Path('/proc/1/environ').read_bytes()",
        "(here / 'queue.py').write_text('evil')",
        "(here / 'in' / 'data').write_text('poison')",
        "(here / 'in' / 'data').unlink()",
        "os.truncate(here / 'in' / 'data', 0)",
        "os.link(here / 'secret', here / 'out' / 'key')",
        "os.rename(here / 'secret', here / 'out' / 'key')",
        "os.symlink(here / 'secret', here / 'out' / 'key')",
        "os.mkfifo(here / 'pipe')",
        "os.mkdir(here / 'out' / 'directory')",
        "(here / 'out' / 'new').write_text('x')",
        "os.open(here / 'out', os.O_WRONLY | os.O_TMPFILE)",
        "(here / 'out' / 'model').unlink()",
        "os.link(here / 'in' / 'data', here / 'out' / 'data')",
        "os.open('/proc/self/fd/0', os.O_RDWR)",
        "Path(sys.executable).with_name('evil').write_text('x')",
    ],
)
def test_other_files_are_out_of_reach(tmp_path: Path, code: str) -> None:
    found = attempt(code, tmp_path)
    assert "PermissionError" in found.stderr or "Invalid cross-device link" in found.stderr
    assert found.stdout == ""
    assert (tmp_path / "secret").read_text() == "a key"
    assert (tmp_path / "in" / "data").read_text() == "a sample"


@FILTERED
@pytest.mark.parametrize("level", ["strict", "weak"])
@pytest.mark.parametrize(
    "code",
    [
        "socket.socket()",
        "socket.socketpair()",
        "subprocess.run(['/bin/true'])",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), 0)",
        "os.setsid()",
        "os.chmod(here / 'out', 0o777)",
        "os.memfd_create('x')",
        "os.open(here / 'out', os.O_WRONLY | os.O_TMPFILE)",
        CALL + "call(seccomp.DENIED['ptrace'][column], 0, 0, 0, 0)",
        "os.fork()",
        "os.fchmod(os.open(here / 'in' / 'data', os.O_RDONLY), 0o777)",
        "os.utime(here / 'in' / 'data')",
        "os.truncate(here / 'out' / 'absent', 0)",
        "os.open(here / 'in' / 'data', os.O_RDONLY | os.O_TRUNC)",
        "os.setpriority(os.PRIO_PROCESS, 0, 19)",
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)",
        CALL + "call(conditions['tgkill'], os.getppid(), os.getppid(), 0)",
        CALL + "call(conditions['clone'], 0x10000000 | 17, 0, 0, 0, 0)",  # CLONE_NEWUSER
        CALL + "call(conditions['prctl'], 1, 0, 0, 0, 0)",
        "fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid())",
        "fcntl.fcntl(os.pipe()[0], fcntl.F_SETSIG, 9)",
    ],
)
def test_network_programs_and_other_processes_are_out_of_reach(tmp_path: Path, level: str, code: str) -> None:
    skip_unless_available(level)
    found = attempt(code, tmp_path, level)
    assert "PermissionError" in found.stderr
    assert found.stdout == ""


@STRICT
def test_what_cuda_does_when_it_starts_is_allowed(tmp_path: Path) -> None:
    """As seen on an H100: it listens on a local socket and names its threads, or else fails."""
    code = (
        "import threading\n"
        "listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "listening.bind(f'\\0moonfed-cuda-{os.getpid()}'.encode()); listening.listen(16)\n"
        "def name():\n"
        "    comm = f'/proc/self/task/{threading.get_native_id()}/comm'\n"
        "    descriptor = os.open(comm, os.O_RDWR); os.write(descriptor, b'worker'); os.close(descriptor)\n"
        "    print(Path(comm).read_text(), end='')\n"
        "thread = threading.Thread(target=name); thread.start(); thread.join()\n"
        "os.close(os.memfd_create('x'))"
    )
    found = attempt(code, tmp_path, limits="cuda=True")
    assert found.stdout == "worker\ndone\n", found.stderr


@STRICT
@pytest.mark.parametrize(
    "code",
    [
        "socket.socket()",
        "socket.socketpair()",
        "socket.socket(socket.AF_UNIX).connect('\\0other')",
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\\0other')",
        "socket.socket(socket.AF_UNIX).bind(str(here / 'out' / 'socket'))",
        "Path(f'/proc/{os.getppid()}/task/{os.getppid()}/comm').write_text('x')",
        "Path('/proc/self/environ').read_bytes()",
        "Path('/proc/self/oom_score_adj').write_text('0')",
        "os.open(f'/proc/self/task/{os.getpid()}/fd/0', os.O_RDWR)",
        "Path('/proc/self/task', str(os.getpid()), 'root', 'etc', 'passwd').read_text()",
        "Path(f'/proc/self/task/{os.getpid()}/cwd/secret').read_text()",
        "(here / 'secret').read_text()",
    ],
)
def test_on_cuda_the_rest_stays_out_of_reach(tmp_path: Path, code: str) -> None:
    found = attempt(code, tmp_path, limits="cuda=True")
    assert "PermissionError" in found.stderr
    assert found.stdout == ""


@FILTERED
def test_other_processes_cannot_be_pinned_to_a_core(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core")
    cores = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE) as other:
        code = (
            f"os.sched_setaffinity({other.pid}, {{{min(cores)}}})\n"
            "core = min(os.sched_getaffinity(0)); os.sched_setaffinity(0, {core})\n"
            "assert os.sched_getaffinity(0) == {core}"
        )
        try:
            found = attempt(code, tmp_path, "weak")
            assert os.sched_getaffinity(other.pid) == cores
        finally:
            other.kill()
    assert found.stdout == "done\n", found.stderr


@FILTERED
def test_every_denied_call_is_denied(tmp_path: Path) -> None:
    code = (
        "from moonfed.sandbox import seccomp\n"
        "column = ('x86_64', 'aarch64').index(os.uname().machine)\n"
        "library = ctypes.CDLL(None, use_errno=True)\n"
        "for name, numbers in seccomp.DENIED.items():\n"
        "    if numbers[column] is not None:\n"
        "        ctypes.set_errno(0)\n"
        "        assert (library.syscall(numbers[column], -1, 0, 0, 0, 0, 0), ctypes.get_errno()) == (-1, 1), name"
    )
    found = attempt(code, tmp_path, "weak")
    assert found.stdout == "done\n", found.stderr


@FILTERED
def test_calls_whose_arguments_no_filter_can_read_seem_absent(tmp_path: Path) -> None:
    code = (
        "from moonfed.sandbox import seccomp\n"
        "column = ('x86_64', 'aarch64').index(os.uname().machine)\n"
        "for name, numbers in seccomp.ABSENT.items():\n"
        "    ctypes.set_errno(0)\n"
        "    found = ctypes.CDLL(None, use_errno=True).syscall(numbers[column], 0, 0, 0, 0)\n"
        "    assert (found, ctypes.get_errno()) == (-1, 38), name"
    )
    found = attempt(code, tmp_path, "weak")
    assert found.stdout == "done\n", found.stderr


@FILTERED
def test_calls_with_an_argument_that_training_uses_are_allowed(tmp_path: Path) -> None:
    code = (
        "with open(here / 'out' / 'model', 'w') as file: fcntl.fcntl(file, fcntl.F_GETFL)\n"
        "open(here / 'out' / 'model', 'w').close()\n"
        "resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "print('aborting', flush=True); os.abort()"
    )
    found = attempt(code, tmp_path, "weak")
    assert (found.stdout, found.returncode) == ("aborting\n", -signal.SIGABRT), found.stderr


@FILTERED
@pytest.mark.skipif(platform.machine() != "x86_64", reason="64-bit ARM has only openat")
def test_the_older_call_to_open_a_file_does_not_truncate_it_either(tmp_path: Path) -> None:
    code = CALL + "call(conditions['open'], os.fsencode(here / 'in' / 'data'), os.O_RDONLY | os.O_TRUNC)"
    assert "PermissionError" in attempt(code, tmp_path, "weak").stderr
    assert (tmp_path / "in" / "data").read_text() == "a sample"


@FILTERED
def test_threads_that_run_already_lose_their_system_calls_too(tmp_path: Path) -> None:
    code = (
        "import threading\n"
        "from moonfed.sandbox.seccomp import deny_system_calls\n"
        "go, seen = threading.Event(), []\n"
        "def work():\n"
        "    go.wait()\n"
        "    try: socket.socket()\n"
        "    except PermissionError as error: seen.append(error)\n"
        "thread = threading.Thread(target=work); thread.start()\n"
        "deny_system_calls(); go.set(); thread.join()\n"
        "assert seen"
    )
    found = attempt(code, tmp_path, "off")
    assert found.stdout == "done\n", found.stderr


@STRICT
def test_a_process_with_threads_cannot_enter(tmp_path: Path) -> None:
    code = (
        "import threading\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "enter_sandbox('strict', Policy())"
    )
    found = attempt(code, tmp_path, "off")
    assert "and there are 2" in found.stderr


# Changes of the samples' memory, whose descriptors for writing and reading are `written` and `read`; only the latter
# is left.
CHANGES = {
    "reopened": "os.open(f'/proc/self/fd/{read}', os.O_RDWR)",
    "truncated": "os.open(f'/proc/self/fd/{read}', os.O_WRONLY | os.O_TRUNC)",
    "truncated by name": "os.truncate(f'/proc/self/fd/{read}', 0)",
    "by a thread's descriptor": "os.open(f'/proc/self/task/{os.getpid()}/fd/{read}', os.O_RDWR)",
    "by the device's name": "os.open(f'/dev/fd/{read}', os.O_RDWR)",
    "by its mapping": (
        "mapped = mmap.mmap(read, 0, prot=mmap.PROT_READ)\n"
        "(line,) = [line for line in Path('/proc/self/maps').read_text().splitlines() if 'samples' in line]\n"
        "os.open(f'/proc/self/map_files/{line.split()[0]}', os.O_RDWR)"
    ),
    "mapped": "mmap.mmap(read, 0)",
    "made writable": (
        "mapped = mmap.mmap(read, 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)\n"
        "(line,) = [line for line in Path('/proc/self/maps').read_text().splitlines() if 'samples' in line]\n"
        "start = ctypes.c_void_p(int(line.split('-')[0], 16))\n"
        "library = ctypes.CDLL(None, use_errno=True)\n"
        "if library.mprotect(start, 4096, 3): raise PermissionError(ctypes.get_errno(), 'mprotect')"
    ),
    "after a change of mode": "os.fchmod(read, 0o600); os.open(f'/proc/self/fd/{read}', os.O_RDWR)",
    "sealed": "fcntl.fcntl(read, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)",
}
SAMPLES = (
    "import mmap\n"
    "from moonfed.sandbox.sandboxed_process import shared_file\n"
    "written, read = shared_file()\n"
    "os.write(written, b'a sample'); keeper = os.dup(written)\n"
)


@FILTERED
@pytest.mark.parametrize("level", ["strict", "weak"])
@pytest.mark.parametrize("change", CHANGES)
def test_the_samples_memory_cannot_be_changed_even_by_the_superuser(tmp_path: Path, level: str, change: str) -> None:
    skip_unless_available(level)
    checked = (
        "os.close(written)\n"
        f"try:\n    exec({CHANGES[change]!r})\n"
        "except PermissionError: print('denied')\n"
        "assert os.pread(read, 99, 0) == b'a sample'\n"
        "os.pwrite(keeper, b'another', 0); assert os.pread(read, 99, 0) == b'anothere', 'its owner can write on'"
    )
    found = attempt(checked, tmp_path, level, before=SAMPLES)
    assert found.stdout == "denied\ndone\n", found.stderr


def test_without_the_sandbox_the_samples_memory_could_be_changed(tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing; the superuser may ignore a file's mode."""
    found = attempt(f"os.fchmod(read, 0o600)\n{CHANGES['reopened']}", tmp_path, "off", before=SAMPLES)
    assert found.stdout == "done\n", found.stderr


# Attempts to make a directory or a file immutable, which only the superuser may, so that nobody can delete it.
IMMUTABLE = {
    "flags of a directory": "fcntl.ioctl(os.open(here / 'out', os.O_RDONLY), 0x40086602, bytes([16, *bytes(7)]))",
    "flags of a file": "fcntl.ioctl(os.open(model, os.O_RDONLY), 0x40086602, bytes([16, *bytes(7)]))",
    "32-bit flags": "fcntl.ioctl(os.open(model, os.O_RDONLY), 0x40046602, bytes([16, *bytes(3)]))",
    "extended attributes": "fcntl.ioctl(os.open(model, os.O_RDONLY), 0x401C5820, bytes([8, *bytes(27)]))",
    "file_setattr": (
        CALL + "call(469, -100, os.fsencode(model), ctypes.byref((ctypes.c_uint64 * 3)(8, 0, 0)), ctypes.c_long(24), 0)"
    ),
    "setxattr": "os.setxattr(model, 'user.name', b'x')",
}


@FILTERED
@pytest.mark.parametrize("level", ["strict", "weak"])
@pytest.mark.parametrize("means", IMMUTABLE)
def test_nothing_can_be_made_immutable(tmp_path: Path, level: str, means: str) -> None:
    skip_unless_available(level)
    found = attempt(f"model = here / 'out' / 'model'\n{IMMUTABLE[means]}", tmp_path, level)
    assert "PermissionError" in found.stderr
    (tmp_path / "out" / "model").unlink()
    (tmp_path / "out").rmdir()


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser makes files immutable")
@pytest.mark.parametrize("means", ["flags of a file", "extended attributes", "file_setattr"])
def test_without_the_sandbox_the_superuser_could(tmp_path: Path, means: str) -> None:
    """Otherwise the test above would prove nothing."""
    found = attempt(f"model = here / 'out' / 'model'\n{IMMUTABLE[means]}", tmp_path, "off")
    model = tmp_path / "out" / "model"
    try:
        model.unlink()
    except PermissionError:
        with model.open() as file:
            fcntl.ioctl(file, 0x40086602, bytes(8))  # FS_IOC_SETFLAGS
        return
    pytest.skip(f"this file system or kernel has no such flag: {found.stderr.splitlines()[-1:]}")


@FILTERED
@pytest.mark.parametrize("level", ["strict", "weak"])
def test_the_superuser_keeps_only_the_privilege_to_read_files(tmp_path: Path, level: str) -> None:
    skip_unless_available(level)
    code = (
        "import threading\n"
        "held = lambda: [line.split()[1] for line in Path('/proc/thread-self/status').read_text().splitlines()\n"
        "                if line.startswith(('CapInh', 'CapPrm', 'CapEff'))]\n"
        "assert all(int(mask, 16) & ~4 == 0 for mask in held()), held()\n"
        "seen = []; thread = threading.Thread(target=lambda: seen.append(held())); thread.start(); thread.join()\n"
        "assert seen == [held()]"
    )
    if level == "strict":
        code = code.replace("/proc/thread-self/status", "/proc/self/status")
    found = attempt(code, tmp_path, level)
    assert found.stdout == "done\n", found.stderr


# Memory that the limit of private memory does not count; `library.mmap` and `failed` are in MEMORY.
UNCOUNTED = {
    "shared": "mapped = library.mmap(None, size, 3, 0x21, -1, 0)",
    "growing down": "mapped = library.mmap(None, size, 3, 0x122, -1, 0)",
    "an unnamed file": "mapped = library.mmap(None, size, 3, 0x1, filled(os.memfd_create('x')), 0)",
    "a file of the system": "mapped = library.mmap(None, size, 3, 0x1, os.open('/dev/zero', os.O_RDWR), 0)",
    "System V": ("mapped = library.shmat(library.shmget(0, ctypes.c_size_t(size), 0o1600), None, 0)"),
    "addresses alone": "mapped = library.mmap(None, 64 << 30, 1, 0x22, -1, 0)",  # their tables take memory
}
MEMORY = (
    "library, size = ctypes.CDLL(None, use_errno=True), 3 << 30\n"
    "library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]\n"
    "library.mmap.restype = library.shmat.restype = ctypes.c_ssize_t\n"
    "def filled(file): os.ftruncate(file, size); return file\n"
    "try:\n    exec({code!r})\n"
    "except PermissionError: mapped = -1\n"
    "assert mapped == -1, 'it was mapped'"
)
LIMITS = "data=400 << 20, addresses=2 << 30"


@FILTERED
@pytest.mark.parametrize("level", ["strict", "weak"])
@pytest.mark.parametrize("kind", UNCOUNTED)
def test_memory_cannot_be_taken_beyond_the_limit(tmp_path: Path, level: str, kind: str) -> None:
    skip_unless_available(level)
    found = attempt(MEMORY.format(code=UNCOUNTED[kind]), tmp_path, level, LIMITS)
    assert found.stdout == "done\n", found.stderr


@FILTERED
@pytest.mark.parametrize("level", ["strict", "weak"])
@pytest.mark.parametrize("kind", ["shared", "growing down", "an unnamed file", "System V"])
def test_memory_that_is_not_counted_is_denied_though_it_is_little(tmp_path: Path, level: str, kind: str) -> None:
    skip_unless_available(level)
    code = MEMORY.format(code=UNCOUNTED[kind]).replace("3 << 30", "1 << 20")
    found = attempt(code, tmp_path, level)
    assert found.stdout == "done\n", found.stderr


def test_without_limits_memory_could_be_taken(tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    for kind in ("shared", "growing down", "an unnamed file", "a file of the system", "addresses alone"):
        found = attempt(MEMORY.format(code=UNCOUNTED[kind]), tmp_path, "off", "data=400 << 20")
        assert "AssertionError: it was mapped" in found.stderr, kind


@pytest.mark.parametrize(
    ("limits", "code", "error"),
    [
        ("data=400 << 20", "bytearray(800 << 20)", "MemoryError"),
        ("addresses=1 << 30", "import mmap; mmap.mmap(-1, 2 << 30)", "Cannot allocate memory"),
        ("file_size=1 << 20", "(here / 'out' / 'model').write_bytes(bytes(2 << 20))", "OSError"),
        ("", "[open(here / 'in' / 'data') for _ in range(2000)]", "OSError"),
    ],
)
def test_resources_are_limited(tmp_path: Path, limits: str, code: str, error: str) -> None:
    import_signal = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    found = attempt(import_signal + code, tmp_path, "off", limits)
    assert error in found.stderr
    assert found.stdout == ""


def test_a_level_must_be_known_and_enforceable(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(InvalidInput, "sandbox", "tight"):
        parse_level("tight")
    assert parse_level("weak") == "weak"
    monkeypatch.setattr(policy, "landlock_version", lambda: 0)
    monkeypatch.setattr(policy, "seccomp_available", lambda: True)
    require_level("weak")
    with refused(InvalidInput, "sandbox", "strict"):
        require_level("strict")
    monkeypatch.setattr(policy, "seccomp_available", lambda: False)
    require_level("off")
    with refused(InvalidInput, "sandbox", "weak"):
        require_level("weak")


def test_an_offered_level_needs_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    for landlock, seccomp, level in ((7, True, "strict"), (0, True, "weak"), (7, False, "off"), (0, False, "off")):
        monkeypatch.setattr(policy, "landlock_version", lambda found=landlock: found)
        monkeypatch.setattr(policy, "seccomp_available", lambda found=seccomp: found)
        assert available_level() == level


@pytest.mark.parametrize(
    "path",
    [
        *(f"{home}/.ssh/id_ed25519" for home in ("/home/me", pwd.getpwuid(0).pw_dir)),
        *("/var/lib/moonfed", "/etc/shadow", "/run/secrets", "/srv", "/mnt"),
        *("/tmp", "/var/tmp", "/dev/sda", "/dev/mem", "/dev/shm", "/proc/1/environ", "/proc/self/environ"),
        *("/proc/self/fd", "/proc/self/root", "/proc/self/mem", "/proc/self/cwd", "/sys/kernel", "/boot", "/opt/data"),
    ],
)
def test_no_system_directory_of_a_plan_holds_files_of_users(path: str) -> None:
    assert [root for root in (*SYSTEM_FILES, *CUDA_FILES) if Path(path).is_relative_to(root)] == []


def test_only_libraries_of_the_interpreter_are_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment may be in the device's state directory, or next to it."""
    for name in ("prefix", "base_prefix", "exec_prefix"):
        monkeypatch.setattr(sys, name, str(tmp_path))
    monkeypatch.setattr(sys, "path", ["", ".", "relative", str(tmp_path / "lib" / "site")])
    monkeypatch.chdir(tmp_path)
    found = list(interpreter_files())
    state = tmp_path / "moonfed-device" / "identity"
    assert not [path for path in found if state.is_relative_to(path) or path.name == "relative"]
    assert {tmp_path / name for name in ("lib", "lib/site", "pyvenv.cfg")} <= set(found)


@pytest.mark.parametrize("field", ["write", "private"])
def test_libraries_above_a_private_directory_are_hidden_though_a_link_names_it(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[Path] = []
    (tmp_path / "link").symlink_to(tmp_path / "device", target_is_directory=True)
    (tmp_path / "device" / "state").mkdir(parents=True)
    libraries = [tmp_path / "device", tmp_path / "libraries"]
    monkeypatch.setattr(policy, "interpreter_files", lambda: libraries)
    monkeypatch.setattr(policy, "restrict_files", lambda read, *_: allowed.extend(read))
    monkeypatch.setattr(policy, "drop_privileges", lambda: None)  # those of the tests
    named = (tmp_path / "link" / "state",)
    policy.confine_files("strict", policy.Policy(write=named) if field == "write" else policy.Policy(private=named))
    assert set(libraries) & set(allowed) == {tmp_path / "libraries"}


def test_state_must_be_where_plans_cannot_read(tmp_path: Path) -> None:
    require_unreadable(tmp_path / "state")
    with refused(InvalidInput, "state", "/usr/local/moonfed"):
        require_unreadable(Path("/usr/local/moonfed"))
