"""The process in which plans run, started as on a device, and honest plans in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from moonfed.assignment import AttemptId
from moonfed.blobs import BlobDirectory
from moonfed.edge_client.agent import sandboxed_process as module
from moonfed.edge_client.agent.child_process import ChildProcess
from moonfed.edge_client.agent.sandboxed_process import JobDirectory, Sandbox, sandboxed_process, shared_file
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.job import Job
from moonfed.edge_client.worker.messages import WorkerSettings, encode
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.methods import METHODS
from moonfed.manifest import MANIFEST_FILE, PLAN_FILE, WEIGHTS_FILE, InputSpec
from moonfed.sandbox.policy import OPEN_FILES, Level, available_level
from tests.edge_client.conftest import SANDBOX, Bundle, Device, write_samples
from tests.support.compiled import device_bundle
from tests.support.device_coordinator import Coordinator
from tools.generate_operators import NETWORKS

STRICT = pytest.mark.skipif(available_level() != "strict", reason="this kernel has no Landlock or no seccomp")
SEARCHED = f"import json, sys; sys.path += [*json.loads(sys.argv.pop(1)), {str(Path(__file__).parents[3])!r}]; "
START = (
    "from moonfed.edge_client.worker import sandboxed; "
    "sandboxed.TASKS = {'probe': 'tests.support.probing_task'}; sandboxed.main()"
)


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
        child = sandboxed_process("probe", {"file": readable}, sandbox, job, (readable,))
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


@pytest.mark.usefixtures("fresh_programs")
def test_no_program_of_a_device_imports_from_its_working_directory(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    """An earlier version let a plan write a module there, which the next process imported."""
    marker = tmp_path / "imported"
    for name in ("queue", "json", "socket", "numpy", "torch", "moonfed", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\nraise SystemExit(9)\n")
    coordinator.assign(bundle.assignment())
    device.start(samples)
    coordinator.wait_for_update()
    assert not marker.exists()


@pytest.fixture
def new_device(tmp_path: Path) -> Iterator[Callable[[Path], WorkerProcess]]:
    made: list[WorkerProcess] = []

    def make(data: Path) -> WorkerProcess:
        settings = WorkerSettings(
            state=str(tmp_path / "state"),
            device="cam-1",
            data=str(data),
            accelerator="cpu",
            holdout=0.2,
            threads=1,
            sandbox=SANDBOX,
        )
        made.append(WorkerProcess(settings))
        return made[-1]

    yield make
    for device in made:
        device.end()


CASES = [("mlp", InputSpec(kind="features", shape=(8,)), method) for method in METHODS] + [
    (model, sample, "moon") for model, sample in NETWORKS
]


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize(("model", "sample", "method"), CASES, ids=[f"{case[0]}, {case[2]}" for case in CASES])
def test_honest_plans_train_in_the_sandbox(
    model: str, sample: InputSpec, method: str, new_device: Callable[[Path], WorkerProcess], tmp_path: Path
) -> None:
    bundle = device_bundle(BundleRecipe(name="honest", model=model, input=sample, classes=("a", "b"), method=method))
    blobs = BlobDirectory(tmp_path / "blobs")
    files = {name: str(blobs.path(blobs.put_bytes(content).sha256)) for name, content in bundle.contents.items()}
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (20, *sample.shape)).astype(sample.dtype)
    np.savez(tmp_path / "data.npz", inputs=inputs, labels=np.arange(20) % 2)
    device = new_device(tmp_path / "data.npz")
    for number in (1, 2):  # the second with previous models and device state
        job = Job(
            id=AttemptId(run="honest", round=number, attempt=1),
            seed=1,
            digest="0" * 64,
            counted=AttemptId(run="honest", round=number - 1, attempt=1) if number > 1 else None,
            training=replace(bundle.manifest.training, epochs=1, batch_size=8),
            manifest_file=files[MANIFEST_FILE],
            plan_file=files[PLAN_FILE],
            files={"model": files[WEIGHTS_FILE]},
        )
        assert device.train(job, lambda _: True)
    rounds = sorted(path.name for path in (tmp_path / "state" / "runs" / "honest").iterdir())
    assert rounds[-1] == "2-1"


@pytest.mark.usefixtures("forked_programs")
def test_another_plan_gets_another_process_and_the_same_plan_the_same(
    new_device: Callable[[Path], WorkerProcess], new_job: Callable[..., Job], tmp_path: Path
) -> None:
    device = new_device(write_samples(tmp_path / "samples.npz"))

    def trainer_after(job: Job) -> int | None:
        assert device.train(job, lambda _: True)
        assert device._trainer
        return device._trainer.pid

    first = trainer_after(new_job())
    output = tmp_path / "state" / "job" / "out"
    held = os.open(output, os.O_RDONLY)  # its inode number is not used again meanwhile
    assert trainer_after(new_job(run="other")) == first
    copy = tmp_path / "copy.json"
    copy.write_bytes(Path(new_job().manifest_file).read_bytes())
    assert trainer_after(new_job(run="third", manifest_file=str(copy))) != first
    assert first is not None
    assert not psutil.pid_exists(first)
    assert not os.path.samestat(os.fstat(held), output.stat()), "the first plan's sandbox may write to it"
    os.close(held)
