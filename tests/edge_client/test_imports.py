"""A device imports no other part, and its idle process nothing heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.edge_client.worker.messages import WorkerSettings
from tests.edge_client.conftest import Bundle, Device, check_of, job_maker, write_samples
from tests.support.device_coordinator import Coordinator
from tests.test_mirroring import PARTS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_programs")]  # forked programs have imported everything
OTHER_PARTS = {f"moonfed.{part}" for part in PARTS if part not in ("common", "proto", "edge_client")}
PARENT = "moonfed.edge_client.agent.main, moonfed.edge_client.agent.session, moonfed.edge_client.agent.worker_process"
READER = "moonfed.edge_client.worker.reader"
TRAINER = "moonfed.sandbox.sandboxed, moonfed.edge_client.worker.trainer"


def packages_after(modules: str) -> set[str]:
    script = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return packages(done.stdout.split())


def packages(modules: list[str]) -> set[str]:
    """Top-level packages, and the parts of the namespace `moonfed`."""
    return {".".join(name.split(".")[: 2 if name.startswith("moonfed.") else 1]) for name in modules}


def test_the_parent_is_light() -> None:
    found = packages_after(PARENT)
    assert {"moonfed.edge_client", "grpc", "cryptography"} <= found
    assert not found & {"torch", "numpy", "typer", "PIL", *OTHER_PARTS}


@pytest.fixture(scope="module")
def trainer_packages(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> list[set[str]]:
    """The packages of a trainer after its imports, and after two rounds."""
    directory = tmp_path_factory.mktemp("trainer")
    samples = write_samples(directory / "samples.npz")
    settings = WorkerSettings(state=str(directory), device="cam-1", data=str(samples), accelerator="cpu", holdout=0.0)
    script = (
        f"import sys, {TRAINER}\n"
        "print(*sys.modules)\n"
        "import json\n"
        "from moonfed.edge_client.job import Job\n"
        "from moonfed.edge_client.worker.messages import WorkerSettings\n"
        "from tests.support.in_process_training import InProcessTraining\n"
        "settings, jobs = json.loads(sys.stdin.read())\n"
        "training = InProcessTraining(WorkerSettings(**settings))\n"
        "for job in jobs: training.train(Job.from_document(job))\n"
        "print(*sys.modules)\n"
    )
    new_job = job_maker(bundle, BlobDirectory(directory / "blobs"))
    jobs = [new_job(round=number).to_document() for number in (1, 2)]
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps([asdict(settings), jobs]),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return [packages(line.split()) for line in done.stdout.splitlines()]


def test_the_trainer_imports_no_other_part(trainer_packages: list[set[str]]) -> None:
    imported, _ = trainer_packages
    assert {"moonfed.edge_client", "torch", "numpy"} <= imported
    assert not imported & {"grpc", "typer", "cryptography", *OTHER_PARTS}


def test_the_reader_imports_no_torch_and_no_other_part() -> None:
    found = packages_after(READER)
    assert {"moonfed.edge_client", "numpy"} <= found
    assert not found & {"torch", "grpc", "typer", "cryptography", *OTHER_PARTS}


def test_a_trainer_enters_the_sandbox_before_it_imports_anything_that_starts_threads() -> None:
    found = packages_after("moonfed.sandbox.sandboxed")
    assert not found & {"torch", "numpy"}


def test_a_device_that_has_trained_has_imported_no_other_part_and_its_agent_nothing_heavy(
    coordinator: Coordinator,
    device: Device,
    bundle: Bundle,
    user_module: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Record sys.modules of two processes: the reader's when its second round begins, the parent's when it ends."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import atexit, os, sys\n"
        f"def dump(name): open(os.path.join({str(tmp_path)!r}, name), 'w').write(' '.join(sys.modules))\n"
        "atexit.register(lambda: dump(f'{os.getpid()}.modules'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hook), prepend=os.pathsep)
    data = user_module(
        "import sitecustomize; sitecustomize.dump(f'reader-{os.getpid()}.modules')\n"
        "return np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3"
    )
    device.start(data)
    for number in (1, 2):
        coordinator.assign(bundle.assignment(round=number))
        coordinator.wait_for_update(number)
    parent, *children = device.processes()
    assert not any("torch" in name or "multiarray" in name for name in mapped(parent))
    (trainer,) = (child for child in children if any("torch" in name for name in mapped(child)))
    assert not any("cygrpc" in name or "rust" in name for name in mapped(trainer)), "no network, no identity"
    (reader,) = (child for child in children if child != trainer)
    device.stop()
    for file, part in ((f"{parent.pid}.modules", {"grpc"}), (f"reader-{reader.pid}.modules", {"numpy", "user_data"})):
        modules = (tmp_path / file).read_text().split()
        found = packages(modules)
        assert {"sitecustomize", "moonfed.edge_client", *part} <= found
        assert not found & {"torch", *OTHER_PARTS}
        assert file.startswith("reader") or not {"numpy", "typer", "ssl", "grpc.aio", "importlib.metadata"} & {*modules}


def mapped(process: psutil.Process) -> set[str]:
    """The names of the files that a process has mapped."""
    return {Path(entry.path).name for entry in process.memory_maps()}


def test_a_trainer_that_has_trained_has_imported_no_other_part(trainer_packages: list[set[str]]) -> None:
    _, trained = trainer_packages
    assert {"moonfed.edge_client", "torch", "numpy"} <= trained
    assert not trained & {"grpc", "typer", "cryptography", *OTHER_PARTS}


def test_the_agent_does_not_grow_with_the_rounds_and_its_memory_settings_do_not_affect_the_children(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.assign(check_of(bundle))
    device.start(samples)
    assert coordinator.wait_for_answer().reason == ""
    sizes = []
    for number in range(1, 6):
        coordinator.assign(bundle.assignment(round=number))
        coordinator.wait_for_update(number)
        device.wait_for_log(f"round {number}: submitted")
        sizes.append(device.processes()[0].memory_info().rss)
    assert sizes[-1] - sizes[1] < 1_000_000
    assert sizes[-1] < 60_000_000
    parent, *children = device.processes()
    assert len(children) == 2
    assert "MALLOC_ARENA_MAX" in parent.environ()
    inherited = {name for child in children for name in child.environ()}
    assert not {name for name in inherited if "MALLOC" in name or "MOONFED_CLIENT" in name}
