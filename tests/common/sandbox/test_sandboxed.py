"""The process in which plans run, started as on a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from moonfed.sandbox import sandboxed_process as module
from moonfed.sandbox.child_process import ChildProcess
from moonfed.sandbox.messages import encode
from moonfed.sandbox.policy import OPEN_FILES, Level, available_level
from moonfed.sandbox.sandboxed_process import JobDirectory, Sandbox, sandboxed_process, shared_file

STRICT = pytest.mark.skipif(available_level() != "strict", reason="needs Landlock and seccomp")
SEARCHED = f"import json, sys; sys.path += [*json.loads(sys.argv.pop(1)), {str(Path(__file__).parents[3])!r}]; "
START = "from moonfed.sandbox import sandboxed; sandboxed.main()"


@contextmanager
def probing(level: Level, directory: Path, temporary: Path | None = None) -> Iterator[ChildProcess]:
    """A process started as on a device, with its state in the directory, next to a secret, as a .pth file names it.

    `temporary`: the job's directory, as that of `predict` and `profile`, if it is not in the state.
    """
    (directory / "secret").write_text("a key")
    (directory / "state").mkdir()
    (directory / "state" / "key.pem").write_text("a key")
    state, (_, readable) = directory / "state", shared_file()
    job = JobDirectory(temporary, state) if temporary else JobDirectory(state / "job")
    job.clear()
    (job.input / "given").write_text("a file of the job")
    sandbox = Sandbox(level=level, accelerator="cpu", max_memory=1 << 30, file_size=12345)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "START", f"{SEARCHED}sys.path.append({str(directory)!r}); {START}")
        patch.setenv("SECRET", "a proxy's password")
        patch.setenv("OMP_NUM_THREADS", "4")
        child = sandboxed_process("tests.support.probing_task", {"file": readable}, sandbox, job, (readable,))
    try:
        yield child
    finally:
        child.end()


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ChildProcess, Path]]:
    """A process in the strictest sandbox, and the directory of the secret."""
    directory = tmp_path_factory.mktemp("probe")
    with probing("strict", directory) as child:
        yield child, directory


@STRICT
def test_torchs_own_threads_are_in_the_sandbox_too(probe: tuple[ChildProcess, Path]) -> None:
    child, directory = probe
    secrets = [str(directory / "secret"), str(directory / "state" / "key.pem"), "/etc/hostname"]
    given = str(directory / "state" / "job" / "in" / "given")
    found = child.answer(encode("probe", paths=[*secrets, given]), "probed")
    assert found
    assert found["read"] == {given: "done", **dict.fromkeys(secrets, "RuntimeError")}
    threads = [path.read_text() for path in Path(f"/proc/{child.pid}/task").glob("*/status")]
    assert len(threads) >= 4
    assert all("\nSeccomp:\t2\n" in text and "\nNoNewPrivs:\t1\n" in text for text in threads)


@STRICT
def test_the_state_is_hidden_from_a_job_elsewhere_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory, temporary = tmp_path_factory.mktemp("device"), tmp_path_factory.mktemp("temporary")
    with probing("strict", directory, temporary / "job") as child:
        key = str(directory / "state" / "key.pem")
        found = child.answer(encode("probe", paths=[key]), "probed")
    assert found
    assert found["read"] == {key: "RuntimeError"}


@STRICT
def test_without_the_sandbox_the_probe_would_succeed(tmp_path: Path) -> None:
    with probing("off", tmp_path) as child:
        found = child.answer(encode("probe", paths=[str(tmp_path / "secret")]), "probed")
    assert found
    assert found["read"] == {str(tmp_path / "secret"): "done"}


@STRICT
def test_the_process_has_no_more_than_it_needs(probe: tuple[ChildProcess, Path]) -> None:
    child, directory = probe
    found = child.answer(encode("probe", paths=[]), "probed")
    assert found
    assert (found["cwd"], found["files"]) == (str(directory / "state" / "job" / "out"), [])
    assert found["opened"] == "PermissionError", "the sandbox is closed before the task is open"
    assert found["samples"] == "OSError", "they are mapped, not written"
    process = psutil.Process(child.pid)
    assert "SECRET" not in process.environ()
    assert process.environ()["OMP_NUM_THREADS"] == "4"
    assert process.environ()["HOME"] == found["cwd"]
    assert "-I" in process.cmdline()
    assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    assert process.rlimit(psutil.RLIMIT_NOFILE)[1] <= OPEN_FILES
    assert process.rlimit(psutil.RLIMIT_FSIZE) == (12345, 12345)
    assert 1 << 30 < process.rlimit(psutil.RLIMIT_DATA)[1] < 3 << 30
    assert 2 << 30 < process.rlimit(psutil.RLIMIT_AS)[1] < 2**40


def test_a_job_directory_is_emptied_whatever_is_in_it(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "job")
    directory.clear()
    before = directory.output.stat().st_ino
    (tmp_path / "kept").write_text("x")
    (directory.output / "link").symlink_to(tmp_path)
    (directory.output / "deep" / "deeper").mkdir(parents=True)
    (directory.output / "deep" / "deeper" / "file").write_text("x")
    (directory.output / "deep").chmod(0)
    directory.add(tmp_path / "kept", "given")
    directory.clear()
    assert not [*directory.input.iterdir(), *directory.output.iterdir()]
    assert (tmp_path / "kept").read_text() == "x"
    assert directory.output.stat().st_ino == before, "a running sandbox refers to it"


def test_directories_above_the_job_are_neither_read_nor_imported_from(tmp_path: Path) -> None:
    """They hold the device's state."""
    above = [str(tmp_path), str(tmp_path / "state"), str(tmp_path / "state" / "job"), "relative"]
    job = JobDirectory(tmp_path / "state" / "job")
    assert module._outside(job, [*above, str(tmp_path / "lib")]) == [str(tmp_path / "lib")]
