"""The files, environment and limits with which a plan's process would start; `test_sandboxed` starts it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from moonfed.errors import TrainingFailed
from moonfed.sandbox import sandboxed_process as module
from moonfed.sandbox.child_process import ChildProcess, Program
from moonfed.sandbox.sandboxed_process import JobDirectory, Sandbox, sandboxed_process, shared_file
from tests.support.refusals import refused

SANDBOX = Sandbox(level="strict", accelerator="cpu", max_memory=1000, file_size=2000)


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    made = JobDirectory(tmp_path / "state" / "job")
    made.clear()
    return made


def started(directory: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return the program that would be started."""
    programs: list[Program] = []
    original = ChildProcess.__init__

    def recorded(child: ChildProcess, program: Program, silence_seconds: float) -> None:
        programs.append(program)
        original(child, program, silence_seconds)

    monkeypatch.setattr(ChildProcess, "__init__", recorded)
    sandboxed_process("moonfed.edge_client.worker.trainer", {"a": 1}, SANDBOX, directory)
    return programs[0]


def spec(program: Program) -> dict[str, Any]:
    return dict(json.loads(program.command[-1]))


def test_a_job_has_only_its_own_files(directory: JobDirectory, tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(b"plan")
    assert directory.add(tmp_path / "plan", "plan.pt") == str(directory.input / "plan.pt")
    assert (directory.input / "plan.pt").read_bytes() == b"plan"
    (directory.output / "leftover").mkdir()
    (directory.output / "leftover" / "file").write_bytes(b"x")
    (directory.output / "link").symlink_to(tmp_path)
    before = [path.stat().st_ino for path in (directory.input, directory.output)]
    directory.clear()
    assert not [*directory.input.iterdir(), *directory.output.iterdir()]
    assert [path.stat().st_ino for path in (directory.input, directory.output)] == before
    assert (tmp_path / "plan").read_bytes() == b"plan", "neither the origin of a link nor a link's target is deleted"


def test_a_renewed_directory_is_another_one(directory: JobDirectory) -> None:
    held = os.open(directory.output, os.O_RDONLY)  # so that its inode is not used again
    try:
        directory.renew()
        assert directory.output.stat().st_ino != os.fstat(held).st_ino
    finally:
        os.close(held)


def test_directories_without_permissions_are_removed(directory: JobDirectory) -> None:
    inner = directory.output / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    for path in (inner, inner.parent, directory.output):
        path.chmod(0)
    directory.renew()
    assert not list(directory.output.iterdir())


def test_a_file_is_copied_where_links_are_impossible(
    directory: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(os, "link", fail)
    (tmp_path / "model").write_bytes(b"weights")
    assert Path(directory.add(str(tmp_path / "model"), "model")).read_bytes() == b"weights"


def test_the_environment_has_no_secret(directory: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"https_proxy": "http://user:password@proxy", "AWS_SECRET_ACCESS_KEY": "x", "PYTHONPATH": "/tmp"}
    for name, value in {**secrets, "OMP_NUM_THREADS": "3", "LANG": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    environment = started(directory, monkeypatch).env
    assert environment
    assert not secrets.keys() & environment.keys()
    assert (environment["OMP_NUM_THREADS"], environment["LANG"]) == ("3", "C.UTF-8")
    assert environment["HOME"] == environment["TMPDIR"] == str(directory.output)


def test_no_program_is_found_because_none_may_be_started(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = started(directory, monkeypatch).env
    assert environment
    assert shutil.which("sh", path=environment["PATH"]) is None


def test_the_interpreter_is_isolated_and_searches_no_directory_above_the_job(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    monkeypatch.chdir(tmp_path / "state")
    above = ["", "relative", str(tmp_path), str(tmp_path / "state"), str(directory.root)]
    monkeypatch.setattr(sys, "path", [*above, str(libraries)])
    program = started(directory, monkeypatch)
    assert program.command[:3] == [sys.executable, "-I", "-c"]
    assert program.cwd == directory.output
    assert json.loads(program.command[-2]) == [str(libraries)]


def test_only_libraries_and_the_job_are_readable(directory: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/opt/cuda/lib{os.pathsep}{os.pathsep}{directory.root.parent}")
    found = spec(started(directory, monkeypatch))
    assert str(directory.input) in found["read"]
    assert "/opt/cuda/lib" in found["read"]
    assert not any(directory.output.is_relative_to(path) for path in found["read"] if path != str(directory.input))
    assert found["output"] == str(directory.output)


def test_no_directory_above_the_devices_state_is_searched_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`predict` and `profile` have their job elsewhere; a .pth file may name a directory above the state."""
    job = JobDirectory(tmp_path / "temporary", tmp_path / "device" / "state")
    job.clear()
    libraries, above = tmp_path / "libraries", [str(tmp_path / "device"), str(tmp_path / "device" / "state")]
    monkeypatch.setattr(sys, "path", [*above, str(libraries)])
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(above))
    program = started(job, monkeypatch)
    assert json.loads(program.command[-2]) == [str(libraries)]
    assert not set(above) & set(spec(program)["read"])
    assert spec(program)["private"] == [str(tmp_path / "temporary"), str(tmp_path / "device" / "state")]


def test_a_state_directory_is_private_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a relative path, by a link to it, or while the search path has a link to a directory above it."""
    (tmp_path / "device" / "state").mkdir(parents=True)
    (tmp_path / "state").symlink_to(tmp_path / "device" / "state")
    (tmp_path / "above").symlink_to(tmp_path / "device")
    monkeypatch.chdir(tmp_path)
    searched = [str(tmp_path / name) for name in ("device", "above", "libraries")]
    monkeypatch.setattr(sys, "path", searched)
    for name in ("device/state", "state"):
        job = JobDirectory(tmp_path / "temporary", Path(name))
        job.clear()
        program = started(job, monkeypatch)
        assert spec(program)["private"][1] == str(tmp_path / name)
        assert json.loads(program.command[-2]) == [str(tmp_path / "libraries")]


def test_files_that_the_process_writes_are_created_for_it(directory: JobDirectory) -> None:
    (directory.output / "model").write_bytes(b"of an earlier job")
    directory.clear()
    directory.create(["model", "statistics"])
    found = {path.name: (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) for path in directory.output.iterdir()}
    assert found == dict.fromkeys(("model", "statistics"), (b"", 0o600))


def test_more_files_than_results_are_too_many(directory: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    check = started(directory, monkeypatch).check
    assert check
    for number in range(SANDBOX.files):
        (directory.output / str(number)).touch()
    check()
    (directory.output / "more").touch()
    with refused(TrainingFailed, "files", SANDBOX.files):
        check()
    directory.clear()
    check()


def test_the_limits_are_the_sandboxs(directory: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    found = spec(started(directory, monkeypatch))
    assert (found["level"], found["memory"], found["file_size"], found["cuda"]) == ("strict", 1000, 2000, False)
    assert (found["task"], found["settings"]) == ("moonfed.edge_client.worker.trainer", {"a": 1})


def test_memory_is_limited_to_what_the_machine_has_but_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "host_available", lambda: 12345)
    assert Sandbox(level="strict", accelerator="cpu").memory == 12345
    assert Sandbox(level="strict", accelerator="cpu", max_memory=99).memory == 99
    assert Sandbox(level="strict", accelerator="cuda", max_memory=99).memory is None


def test_a_shared_file_has_no_name_and_its_reader_cannot_write() -> None:
    written, readable = shared_file()
    try:
        os.write(written, b"samples")
        assert os.pread(readable, 100, 0) == b"samples"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(readable, b"changed")
    finally:
        os.close(written)
        os.close(readable)


def test_the_working_directory_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "work"), str(tmp_path / "lib")])
    assert module._search_path(JobDirectory(tmp_path / "state" / "job")) == [str(tmp_path / "lib")]
