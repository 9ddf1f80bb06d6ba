"""Interruptions that both clients survive: restarts, streams that end early, downloads that break."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.blobs.store import BlobRef
from moonfed.bundle.files import write_bundle
from moonfed.client import Coordinator, Ended, Interrupted, RoundCommitted, Snapshot
from moonfed.control.events import RunEvent
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.errors import Corrupt, Denied, NotFound, Unavailable
from moonfed.transport.identity import load_identity
from moonfed.v1 import blob_pb2
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


class Interruptions:
    """Tests of a client's connection, of one `kind`: it survives interruptions, and verifies what it receives."""

    kind: str

    def test_a_watch_reports_every_round_across_a_restart(self, tmp_path: Path) -> None:
        """Assert that a watch reports each committed round once, though it was away for most of them."""
        coordinators, bundle = Coordinators(tmp_path, arguments=("--name", "localhost")), bundle_of(3)
        write_bundle(tmp_path / "bundle", bundle)
        coordinators.serve()
        try:
            enrol_all(coordinators, ["cam-1", "cam-2", "cam-3"])
            with devices_at(coordinators), opened(coordinators.state / "operator", self.kind) as client:
                client.start(tmp_path / "bundle", name="r", rounds=ROUNDS, minimum_devices=3, quorum="all")
                watch, seen = client.watch("r", progress=False), list[object]()
                for event in watch:
                    seen.append(event)
                    if isinstance(event, RoundCommitted):
                        break
                coordinators.kill()
                coordinators.serve()
                until(lambda: coordinators.run("r").status == "finished")
                seen += list(watch)
        finally:
            coordinators.kill()
        kinds = [type(event) for event in seen]
        assert [event.round for event in seen if isinstance(event, RoundCommitted)] == list(range(1, ROUNDS + 1))
        assert kinds.count(Ended) == 1
        assert kinds[-1] is Ended
        assert Snapshot in kinds[kinds.index(Interrupted) :]

    def test_the_watch_of_a_run_that_just_ended_ends(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Assert that a stream which ends with its snapshot is followed by the end: it began as the run ended."""
        watched: list[str] = []

        async def cut(api: OperatorApi, run: str) -> AsyncIterator[RunEvent]:
            watched.append(run)
            yield Snapshot(run=await api.run(run))
            if len(watched) == 2:
                await api.stop_run(run)

        monkeypatch.setattr(OperatorApi, "watch", cut)
        with in_process(tmp_path, self.kind) as (fleet, client):
            fleet.start("r")
            assert [type(event) for event in client.watch("r")] == [Snapshot, Snapshot, Ended]
            assert len(watched) == 2, "while the run is active, a stream that ends is replaced"

    def test_a_download_is_resumed_and_verified(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Assert that a broken download goes on where it stopped, and that wrong bytes are an error."""
        offsets = list[int]()

        async def broken(blobs: BlobStore, request: blob_pb2.FetchRequest, slot: Any) -> AsyncIterator[bytes]:
            offsets.append(request.offset)
            async for chunk in chunks(blobs, request, slot):
                if len(offsets) > 1:
                    yield chunk
                    continue
                yield blob_pb2.Chunk(data=blob_pb2.Chunk.FromString(chunk).data[:10]).SerializeToString()
                raise Unavailable("the first download breaks")

        async def wrong(blobs: BlobStore, request: blob_pb2.FetchRequest, slot: Any) -> AsyncIterator[bytes]:
            yield blob_pb2.Chunk(data=b"wrong").SerializeToString()

        with in_process(tmp_path, self.kind) as (fleet, client):
            fleet.start("r")
            monkeypatch.setattr(CHUNKS, broken)
            assert all(np.all(values == 0) for values in client.weights("r").values())
            assert offsets[:2] == [0, 10]
            monkeypatch.setattr(CHUNKS, wrong)
            with pytest.raises(Corrupt, match="another sha256"):
                client.weights("r")

    def test_an_upload_is_repeated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Assert that an upload which nobody confirmed is sent again, and that what is final ends it."""
        attempts, store = list[int](), OperatorApi.store

        async def unsure(api: OperatorApi, transfer: Any, refs: list[BlobRef]) -> None:
            attempts.append(len(refs))
            if len(attempts) == 1:
                raise Unavailable("the disk of the coordinator is away")
            if len(attempts) > 2:
                raise NotFound("the disk of the coordinator is gone")
            await store(api, transfer, refs)

        monkeypatch.setattr(OperatorApi, "store", unsure)
        with in_process(tmp_path, self.kind) as (_, client):
            write_bundle(tmp_path / "bundle", bundle_of(3))
            client.stop(client.start(tmp_path / "bundle", name="r").run)
            assert attempts == [5, 5]
            write_bundle(tmp_path / "bundle", bundle_of(4))
            with pytest.raises(NotFound, match="is gone"):
                client.start(tmp_path / "bundle")

    def test_a_role_that_does_not_permit_a_call_is_an_error_of_ours(self, tmp_path: Path) -> None:
        """Assert that a viewer may read, and nothing else."""
        with fleet_in(tmp_path) as fleet:
            fleet.start("r")
            ca = load_identity(fleet.state / "operator").ca
            create_operator(fleet.operator, tmp_path / "vera", "vera", "viewer", ca)
            with opened(tmp_path / "vera", self.kind) as client:
                assert [run.run for run in client.runs()] == ["r"]
                with pytest.raises(Denied, match="viewer"):
                    client.stop("r")
