"""The device's fingerprint changes with everything that its eligibility depends on, and with nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.edge_client.agent import fingerprint
from moonfed.edge_client.agent.fingerprint import DeviceFingerprint
from moonfed.edge_client.state.trust import pin
from moonfed.edge_client.worker.messages import WorkerSettings
from tests.support.signatures import TRUST, trust

PLATFORM = {"torch": "2.6", "memory": "8000000000"}


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    (tmp_path / "samples.npz").write_bytes(b"samples")
    data = str(tmp_path / "samples.npz")
    return WorkerSettings(state=str(tmp_path), device="cam-1", data=data, accelerator="cpu", holdout=0.0)


def test_it_is_the_same_after_every_start(settings: WorkerSettings) -> None:
    first, second = (DeviceFingerprint(settings, PLATFORM).announce() for _ in range(2))
    assert first == second
    assert len(first) == 64
    budgets = replace(settings, max_steps=3, max_seconds=7.0, labels={"site": "north"})  # they exclude from no run
    assert DeviceFingerprint(budgets, PLATFORM).announce() == first


def test_it_changes_with_data_limits_software_and_trust(
    settings: WorkerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [DeviceFingerprint(settings, PLATFORM).announce()]
    changes = (
        {"max_memory": 10**9},
        {"holdout": 0.5},
        {"precision": "bfloat16"},
        {"accelerator": "cuda"},
        {"ignored_folders": ("x",)},
        {"plan_interfaces": ("graph/1",)},
    )
    others = [replace(settings, **change) for change in changes]
    seen += [DeviceFingerprint(other, PLATFORM).announce() for other in others]
    seen.append(DeviceFingerprint(settings, PLATFORM | {"torch": "2.7"}).announce())
    pin(tmp_path, TRUST)
    seen.append(DeviceFingerprint(settings, PLATFORM).announce())
    pin(tmp_path, trust(9))
    seen.append(DeviceFingerprint(settings, PLATFORM).announce())
    (tmp_path / "samples.npz").write_bytes(b"more samples")
    seen.append(DeviceFingerprint(settings, PLATFORM).announce())
    monkeypatch.setattr(fingerprint, "RELEASE", "99.0")
    seen.append(DeviceFingerprint(settings, PLATFORM).announce())
    assert len(set(seen)) == len(seen)


def test_a_functions_data_count_as_changed_after_every_start(settings: WorkerSettings) -> None:
    one, other = (DeviceFingerprint(replace(settings, data="data:load"), PLATFORM) for _ in range(2))
    assert one.announce() != other.announce()
    assert not one.has_changed()
    assert not one.covers_data


def test_a_change_is_noticed_and_announced(settings: WorkerSettings, tmp_path: Path) -> None:
    found = DeviceFingerprint(settings, PLATFORM)
    assert not found.has_changed(), "the coordinator knows nothing yet"
    before = found.announce()
    os.utime(tmp_path / "samples.npz", ns=(1, 1))
    assert found.announce() == before, "an unreachable coordinator is no reason to look again"
    assert found.has_changed()
    assert found.announced == before
    assert found.announce() != before
    assert not found.has_changed()
