"""A device imports no other part, and its idle process nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.edge_client.conftest import Bundle, Device
from tests.support.device_coordinator import Coordinator

pytestmark = pytest.mark.usefixtures("fresh_programs")  # forked programs have imported everything
OTHER_PARTS = {f"moonfed.{part}" for part in ("export", "serving", "release", "coordinator", "experiments")}
PARENT = "moonfed.edge_client.agent.main, moonfed.edge_client.agent.session, moonfed.edge_client.agent.worker_process"
CHILD = (
    "moonfed.edge_client.worker.main, moonfed.edge_client.worker.trainer, moonfed.edge_client.training.local_training"
)


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


def test_the_worker_imports_no_other_part() -> None:
    found = packages_after(CHILD)
    assert {"moonfed.edge_client", "torch", "numpy"} <= found
    assert not found & {"grpc", "typer", *OTHER_PARTS}


def test_the_worker_starts_without_torch() -> None:
    assert "torch" not in packages_after("moonfed.edge_client.worker.main")


def test_a_device_that_has_trained_has_imported_no_other_part_and_its_agent_nothing_heavy(
    coordinator: Coordinator,
    device: Device,
    bundle: Bundle,
    user_module: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Record sys.modules of both processes: the worker's when its second round begins, the parent's when it ends."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import atexit, os, sys\n"
        f"def dump(name): open(os.path.join({str(tmp_path)!r}, name), 'w').write(' '.join(sys.modules))\n"
        "atexit.register(lambda: dump(f'{os.getpid()}.modules'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hook), prepend=os.pathsep)
    data = user_module(
        "import sitecustomize; sitecustomize.dump(f'worker-{os.getpid()}.modules')\n"
        "return np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3"
    )
    device.start(data)
    for number in (1, 2):
        coordinator.assign(bundle.assignment(round=number))
        coordinator.wait_for_update(number)
    parent, worker = device.processes()
    mapped = {Path(entry.path).name for entry in parent.memory_maps()}
    assert not any("torch" in name or "multiarray" in name for name in mapped)
    assert any("torch" in entry.path for entry in worker.memory_maps())
    device.stop()
    for file, part in ((f"{parent.pid}.modules", {"grpc"}), (f"worker-{worker.pid}.modules", {"torch", "user_data"})):
        modules = (tmp_path / file).read_text().split()
        found = packages(modules)
        assert {"sitecustomize", "moonfed.edge_client", *part} <= found
        assert not found & OTHER_PARTS
        assert file.startswith("worker") or not found & {"torch", "numpy", "typer"}
    assert "moonfed.edge_client.training.local_training" in modules


def test_the_agent_does_not_grow_with_the_rounds_and_its_memory_settings_do_not_affect_the_worker(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.start(samples)
    sizes = []
    for number in range(1, 6):
        coordinator.assign(bundle.assignment(round=number))
        coordinator.wait_for_update(number)
        device.wait_for_log(f"round {number}: submitted")
        sizes.append(device.processes()[0].memory_info().rss)
    assert sizes[-1] - sizes[1] < 1_000_000
    assert sizes[-1] < 60_000_000
    parent, worker = device.processes()
    assert "MALLOC_ARENA_MAX" in parent.environ()
    assert not any("MALLOC" in name or "MOONFED" in name for name in worker.environ())
