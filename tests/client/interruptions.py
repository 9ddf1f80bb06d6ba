"""Interruptions that both clients survive: restarts, streams that end early, downloads that break."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.blobs import BlobRef
from moonfed.bundle import write_bundle
from moonfed.client import Coordinator, Ended, Interrupted, RoundCommitted, Snapshot
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.records import RunEvent, RunView
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.errors import Corrupt, Denied, NotFound, Unavailable
from moonfed.identity import load_identity
from moonfed.v1 import blob_pb2, control_pb2
from tests.client.conftest import opened
from tests.coordinator.conftest import Fleet, fleet_in
from tests.faults.fleet import Coordinators, bundle_of, devices_at, enrol_all, until
from tests.support.operators import create_operator

ROUNDS = 4
CHUNKS = "moonfed.coordinator.rpc.control_service.chunks"


@contextmanager
def in_process(directory: Path, kind: str) -> Iterator[tuple[Fleet, Coordinator]]:
    """Start a coordinator in this process, which a test can disturb, and a client of it."""
    with fleet_in(directory) as fleet, opened(fleet.state / "operator", kind) as client:
        yield fleet, client


def watch_across_a_restart(directory: Path, kind: str) -> None:
    """Assert that a watch reports each committed round once, though it was away for most of them."""
    coordinators, bundle = Coordinators(directory, arguments=("--name", "localhost")), bundle_of(3)
    write_bundle(directory / "bundle", bundle)
    coordinators.serve()
    try:
        enrol_all(coordinators, ["cam-1", "cam-2", "cam-3"])
        with devices_at(coordinators), opened(coordinators.state / "operator", kind) as client:
            client.start(directory / "bundle", name="r", rounds=ROUNDS, minimum_devices=3, quorum="all")
            watch, seen = client.watch("r", progress=False), list[object]()
            for event in watch:
                seen.append(event)
                if isinstance(event, RoundCommitted):
                    break
            coordinators.kill()
            coordinators.serve()
            until(lambda: coordinators.run("r").status == control_pb2.RUN_STATUS_FINISHED)
            seen += list(watch)
    finally:
        coordinators.kill()
    kinds = [type(event) for event in seen]
    assert [event.round for event in seen if isinstance(event, RoundCommitted)] == list(range(1, ROUNDS + 1))
    assert kinds.count(Ended) == 1
    assert kinds[-1] is Ended
    assert Snapshot in kinds[kinds.index(Interrupted) :]


def watch_a_run_that_just_ended(directory: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a stream which ends with its snapshot is followed by the end: it began as the run ended."""
    watched: list[str] = []

    async def cut(self: OperatorApi, run: str) -> AsyncIterator[RunEvent | RunView]:
        watched.append(run)
        yield await self.run(run)
        if len(watched) == 2:
            await self.stop_run(run)

    monkeypatch.setattr(OperatorApi, "watch", cut)
    with in_process(directory, kind) as (fleet, client):
        fleet.start("r")
        assert [type(event) for event in client.watch("r")] == [Snapshot, Snapshot, Ended]
        assert len(watched) == 2, "while the run is active, a stream that ends is replaced"


def resume_a_download(directory: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a broken download goes on where it stopped, and that wrong bytes are an error."""
    offsets = list[int]()

    async def broken(blobs: BlobStore, request: blob_pb2.FetchRequest, slot: Any) -> AsyncIterator[bytes]:  # noqa: ANN401
        offsets.append(request.offset)
        async for chunk in chunks(blobs, request, slot):
            if len(offsets) > 1:
                yield chunk
                continue
            yield blob_pb2.Chunk(data=blob_pb2.Chunk.FromString(chunk).data[:10]).SerializeToString()
            raise Unavailable("the first download breaks")

    async def wrong(blobs: BlobStore, request: blob_pb2.FetchRequest, slot: Any) -> AsyncIterator[bytes]:  # noqa: ANN401
        yield blob_pb2.Chunk(data=b"wrong").SerializeToString()

    with in_process(directory, kind) as (fleet, client):
        fleet.start("r")
        monkeypatch.setattr(CHUNKS, broken)
        assert all(np.all(values == 0) for values in client.weights("r").values())
        assert offsets[:2] == [0, 10]
        monkeypatch.setattr(CHUNKS, wrong)
        with pytest.raises(Corrupt, match="another sha256"):
            client.weights("r")


def resume_an_upload(directory: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that an upload which nobody confirmed is sent again, and that what is final ends it."""
    attempts, store = list[int](), OperatorApi.store

    async def unsure(self: OperatorApi, transfer: Any, refs: list[BlobRef]) -> None:  # noqa: ANN401
        attempts.append(len(refs))
        if len(attempts) == 1:
            raise Unavailable("the disk of the coordinator is away")
        if len(attempts) > 2:
            raise NotFound("the disk of the coordinator is gone")
        await store(self, transfer, refs)

    monkeypatch.setattr(OperatorApi, "store", unsure)
    with in_process(directory, kind) as (_, client):
        write_bundle(directory / "bundle", bundle_of(3))
        client.stop(client.start(directory / "bundle", name="r").run)
        assert attempts == [5, 5]
        write_bundle(directory / "bundle", bundle_of(4))
        with pytest.raises(NotFound, match="is gone"):
            client.start(directory / "bundle")


def be_denied(directory: Path, kind: str) -> None:
    """Assert that a viewer may read, and nothing else."""
    with fleet_in(directory) as fleet:
        fleet.start("r")
        ca = load_identity(fleet.state / "operator").ca
        create_operator(fleet.operator, directory / "vera", "vera", "viewer", ca)
        with opened(directory / "vera", kind) as client:
            assert [run.run for run in client.runs()] == ["r"]
            with pytest.raises(Denied, match="viewer"):
                client.stop("r")
