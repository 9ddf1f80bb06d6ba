"""A device carries nothing of the other rooms, and its idle process nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.edge_client.conftest import Bundle, Device
from tests.edge_client.coordinator import Coordinator

OTHER_ROOMS = {"export", "coordinator", "experiments"}
PARENT = "edge_client.attend, edge_client.session, edge_client.child"
CHILD = "edge_client.worker, edge_client.trainer, edge_client.training"


def packages_after(modules: str) -> set[str]:
    script = f"import sys, {modules}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_parent_is_light() -> None:
    found = packages_after(PARENT)
    assert {"edge_client", "moonfed", "grpc", "cryptography"} <= found
    assert not found & {"torch", "numpy", "typer", "PIL", *OTHER_ROOMS}


def test_the_child_imports_no_other_room() -> None:
    found = packages_after(CHILD)
    assert {"edge_client", "moonfed", "torch", "numpy"} <= found
    assert not found & {"grpc", "typer", *OTHER_ROOMS}


def test_the_child_starts_without_torch() -> None:
    assert "torch" not in packages_after("edge_client.worker")


def test_a_device_that_has_trained_has_imported_no_other_room_and_its_parent_nothing_heavy(
    coordinator: Coordinator,
    device: Device,
    bundle: Bundle,
    user_module: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both processes write down their sys.modules: the child when its second round begins, the parent when it ends."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import atexit, os, sys\n"
        f"def dump(name): open(os.path.join({str(tmp_path)!r}, name), 'w').write(' '.join(sys.modules))\n"
        "atexit.register(lambda: dump(f'{os.getpid()}.modules'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hook), prepend=os.pathsep)
    data = user_module(
        "import sitecustomize; sitecustomize.dump(f'child-{os.getpid()}.modules')\n"
        "return np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3"
    )
    device.start(data)
    for number in (1, 2):
        coordinator.assign(bundle.assignment(round=number))
        coordinator.wait_for_update(number)
    parent, child = device.processes()
    mapped = {Path(entry.path).name for entry in parent.memory_maps()}
    assert not any("torch" in name or "multiarray" in name for name in mapped)
    assert any("torch" in entry.path for entry in child.memory_maps())
    device.stop()
    for file, room in ((f"{parent.pid}.modules", {"grpc"}), (f"child-{child.pid}.modules", {"torch", "user_data"})):
        modules = (tmp_path / file).read_text().split()
        found = {name.partition(".")[0] for name in modules}
        assert {"sitecustomize", "edge_client", "moonfed", *room} <= found
        assert not found & OTHER_ROOMS
        assert file.startswith("child") or not found & {"torch", "numpy", "typer"}
    assert "edge_client.training" in modules


def test_a_parent_does_not_grow_with_the_rounds_and_its_thrift_is_not_its_childs(
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
    parent, child = device.processes()
    assert "MALLOC_ARENA_MAX" in parent.environ()
    assert not any("MALLOC" in name or "MOONFED" in name for name in child.environ())
