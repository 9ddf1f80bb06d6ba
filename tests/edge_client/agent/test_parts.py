"""Frozen and personal tensors on a device: fetched once, verified, resumed, and the newest of its own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from moonfed.blobs.store import BlobDirectory, ref_of_bytes
from moonfed.blobs.tensors import TensorSpec, write_model
from moonfed.bundle.manifest import FROZEN_FILE, PERSONAL, PERSONAL_FILE
from moonfed.edge_client.agent import transfers
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.executor import Executor
from moonfed.edge_client.agent.fingerprint import DeviceFingerprint
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.job import Job
from moonfed.edge_client.resources.free_disk import FILES_BYTES
from moonfed.edge_client.state.gc import drop_run
from moonfed.edge_client.state.round_results import with_kept_files
from moonfed.edge_client.state.round_store import RunState
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import ResourceExhausted
from moonfed.fleet.messages import read_assignment
from moonfed.transport.client import Backoff
from tests.edge_client.conftest import SANDBOX, Bundle, Device
from tests.support.device_coordinator import Coordinator
from tests.support.refusals import refused
from tests.support.signatures import signature

FROZEN = (TensorSpec("encoder.frozen", (1 << 18,), "parameter"),)
OWN = (TensorSpec("output_layer.own", (5,), "parameter"),)


@pytest.fixture
def settings(device: Device, samples: Path) -> WorkerSettings:
    return WorkerSettings(
        state=str(device.state),
        device="cam-1",
        data=str(samples),
        accelerator="cpu",
        holdout=0.0,
        threads=1,
        sandbox=SANDBOX,
    )


@pytest.fixture
def executor(link: FleetConnection, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch) -> Executor:
    monkeypatch.setattr(transfers, "Backoff", lambda: Backoff(first=0.01))
    link.online.set()
    return Executor(settings, link, WorkerProcess(settings), Inbox(), DeviceFingerprint(settings, {}))


def tensors_file(path: Path, specs: tuple[TensorSpec, ...]) -> bytes:
    write_model(path, specs, (torch.rand(spec.size).numpy() for spec in specs))
    return path.read_bytes()


@pytest.fixture
def parts(tmp_path: Path) -> Mapping[str, bytes]:
    return {
        FROZEN_FILE: tensors_file(tmp_path / FROZEN_FILE, FROZEN),
        PERSONAL_FILE: tensors_file(tmp_path / PERSONAL_FILE, OWN),
    }


def divided(bundle: Bundle, parts: Mapping[str, bytes], blobs: BlobDirectory, *, name: str = "tested") -> Bundle:
    """Give the bundle a frozen and a personal tensor."""
    files = {**bundle.manifest.files, **{file: ref_of_bytes(content) for file, content in parts.items()}}
    manifest = replace(bundle.manifest, name=name, frozen=FROZEN, device_state={PERSONAL: OWN}, files=files)
    signed = signature(manifest.to_bytes()).to_bytes()
    changed = replace(bundle, manifest=manifest, signature=signed)
    changed.put_into(blobs)
    for content in parts.values():
        blobs.put_bytes(content)
    return changed


def fetches(coordinator: Coordinator, content: bytes) -> list[int]:
    """The offsets at which a file was fetched."""
    return [offset for sha256, offset in coordinator.fetched if sha256 == ref_of_bytes(content).sha256]


def prepared(executor: Executor, bundle: Bundle, round_: int = 1) -> Job:
    return executor._prepare(read_assignment(bundle.assignment(round=round_)))


def test_a_part_is_fetched_once_and_again_only_if_it_is_damaged(
    executor: Executor, coordinator: Coordinator, bundle: Bundle, parts: Mapping[str, bytes]
) -> None:
    made = divided(bundle, parts, coordinator.blobs)
    job = prepared(executor, made)
    assert {name: Path(file).read_bytes() for name, file in job.parts.items()} == parts
    prepared(executor, made, 2)
    assert fetches(coordinator, parts[FROZEN_FILE]) == [0]
    other = replace(made.manifest, augmentation="other")
    another = replace(made, manifest=other, signature=signature(other.to_bytes()).to_bytes())
    another.put_into(coordinator.blobs)
    prepared(executor, another)
    assert fetches(coordinator, parts[FROZEN_FILE]) == [0], "another bundle with the same digest costs nothing"
    damaged = bytearray(parts[FROZEN_FILE])
    damaged[-1] ^= 1
    Path(job.parts[FROZEN_FILE]).write_bytes(damaged)
    job = prepared(executor, made, 3)
    assert Path(job.parts[FROZEN_FILE]).read_bytes() == parts[FROZEN_FILE]
    assert fetches(coordinator, parts[FROZEN_FILE]) == [0, 0]


def test_a_fetch_that_was_cut_goes_on_where_it_ended(
    executor: Executor, coordinator: Coordinator, bundle: Bundle, parts: Mapping[str, bytes]
) -> None:
    made = divided(bundle, parts, coordinator.blobs)
    coordinator.break_fetch_after = len(parts[FROZEN_FILE]) // 2
    job = prepared(executor, made)
    first, second = fetches(coordinator, parts[FROZEN_FILE])
    assert first == 0 < second
    assert Path(job.parts[FROZEN_FILE]).read_bytes() == parts[FROZEN_FILE]


def test_a_disk_too_small_for_the_parts_is_noticed_first(
    executor: Executor,
    coordinator: Coordinator,
    bundle: Bundle,
    parts: Mapping[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = divided(bundle, parts, coordinator.blobs)
    usage = shutil.disk_usage("/")._replace(free=FILES_BYTES + len(parts[FROZEN_FILE]) // 2)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage)
        with refused(ResourceExhausted, "free disk"):
            prepared(executor, made)
    assert fetches(coordinator, parts[FROZEN_FILE]) == []
    prepared(executor, made)
    assert fetches(coordinator, parts[FROZEN_FILE]) == [0]


def test_parts_go_with_the_last_run_that_uses_them(
    executor: Executor, settings: WorkerSettings, coordinator: Coordinator, bundle: Bundle, parts: Mapping[str, bytes]
) -> None:
    made = divided(bundle, parts, coordinator.blobs)
    job = prepared(executor, made)
    state = Path(settings.state)
    for run in ("one", "two"):
        stored(RunState(state / "runs", run, manifest=made.digest, seed=1), 1, b"own")
    drop_run(state / "runs", "one", state / "blobs")
    assert Path(job.parts[FROZEN_FILE]).exists()
    drop_run(state / "runs", "two", state / "blobs")
    assert not Path(job.parts[FROZEN_FILE]).exists()


def stored(state: RunState, round_: int, own: bytes) -> Path:
    """Store the results of a round; return the personal file."""
    saved = state.save(
        round_,
        1,
        files={"model": lambda path: path.write_bytes(b"model"), PERSONAL: lambda path: path.write_bytes(own)},  # type: ignore[dict-item]
        kept=[PERSONAL],
        assignment="digest",
        samples=1,
        steps=1,
        metrics={},
        keep=2,
    )
    return saved.file(PERSONAL)


def test_the_newest_intact_personal_part_is_used_whether_or_not_its_round_counted(
    coordinator: Coordinator,
    bundle: Bundle,
    parts: Mapping[str, bytes],
    executor: Executor,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = divided(bundle, parts, coordinator.blobs)
    job, state = prepared(executor, made), RunState(tmp_path / "runs", "tested", manifest=made.digest, seed=1)
    begun = with_kept_files(job, state, made.manifest)
    assert (begun.kept, begun.personal_lost) == ({}, False)  # the bundle's initial values
    assert with_kept_files(replace(job, counted=job.id), state, made.manifest).personal_lost, "the disk was wiped"
    first, second = stored(state, 1, b"first"), stored(state, 2, b"second")
    assert with_kept_files(job, state, made.manifest).kept == {PERSONAL: str(second)}
    second.write_bytes(b"lost")
    found = with_kept_files(replace(job, counted=job.id), state, made.manifest)
    assert (found.kept, found.personal_lost) == ({PERSONAL: str(first)}, False)
    first.unlink()
    found = with_kept_files(job, state, made.manifest)
    assert (found.kept, found.personal_lost) == ({}, True)
    assert "personal tensors of run tested are lost" in caplog.text
