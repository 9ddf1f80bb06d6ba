"""Garbage collection removes only unreferenced data: automatically, on request, and across kills."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moonfed.blobs.store import BlobDirectory, ref_of_bytes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.storage.blobs.garbage_collection import UPLOAD_SECONDS
from moonfed.coordinator.storage.opening import Storage, open_storage
from moonfed.errors import InvalidInput, NotFound, WrongState
from moonfed.transport.client import to_message
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet
from tests.support import coordinator
from tests.support.coordinator import ask, model_bytes
from tests.support.refusals import refused
from tests.support.store_records import RUN

BUNDLE = coordinator.make_bundle()
RECORD = replace(RUN, run="r", manifest=BUNDLE.ref, initial=BUNDLE.manifest.files["initial.safetensors"])


def begin(storage: Storage) -> None:
    """Store the bundle, start a run from it, and end the run."""
    for content in (*BUNDLE.contents.values(), b"signature"):
        storage.blobs.put_bytes(content)
    storage.store.add_run(RECORD, BUNDLE.manifest.files)


def commit(storage: Storage, round_: int, retention: Retention) -> None:
    """Commit a round whose model and momentum are separate tiny blobs."""
    attempt = AttemptId(run="r", round=round_, attempt=1)
    storage.store.open_round(attempt, ["a"])
    blobs = {role: storage.blobs.put_bytes(f"{role} {round_}".encode()) for role in ("model", "momentum")}
    storage.garbage_collector.collect(
        storage.store.commit_round(attempt, ["a"], blobs, metrics={}, metrics_before={}, retention=retention),
    )


def stored(state: Path) -> set[str]:
    return {path.name for path in (state / "blobs").glob("??/*")}


def referred_to(state: Path) -> set[str]:
    with closing(sqlite3.connect(state / "coordinator.db")) as connection:
        return {sha256 for (sha256,) in connection.execute("SELECT sha256 FROM blob_references")}


def test_hundreds_of_rounds_leave_a_bounded_number_of_blobs(state: Path) -> None:
    with open_storage(state) as storage:
        begin(storage)
        most = 0
        for round_ in range(1, 301):
            commit(storage, round_, Retention(last=5, every=100))
            most = max(most, len(stored(state)))
        # The bundle's four files and its signature; the newest momentum; five models; those of rounds 100, 200 and 300,
        # which is new too.
        assert len(stored(state)) == 5 + 1 + 5 + 2
        assert most <= 5 + 1 + 5 + 2
        assert stored(state) == referred_to(state)
        assert [found.id.round for found in storage.store.past_rounds("r", None, 999) if found.model] == [
            100,
            200,
            296,
            297,
            298,
            299,
            300,
        ]


def test_a_kill_at_any_point_loses_no_blob_and_leaves_no_dangling_reference(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copy the state before and after each durable step, as a kill there would leave it."""
    copies: list[Path] = []

    def copied(place: type[object], name: str) -> None:
        work = getattr(place, name)

        def around(*args: object, **fields: object) -> object:
            copies.append(state.parent / f"copy-{len(copies)}")
            shutil.copytree(state, copies[-1])
            done = work(*args, **fields)
            copies.append(state.parent / f"copy-{len(copies)}")
            shutil.copytree(state, copies[-1])
            return done

        killed.setattr(place, name, around)

    with open_storage(state) as storage:
        begin(storage)
        commit(storage, 1, Retention(last=1, every=0))
        with monkeypatch.context() as killed:
            copied(BlobDirectory, "put_bytes")
            copied(BlobDirectory, "delete")
            copied(type(storage.store), "commit_round")
            commit(storage, 2, Retention(last=1, every=0))
            storage.store.end_run("r", "stopped")
            copied(type(storage.store), "delete_run")
            storage.garbage_collector.collect(storage.store.delete_run("r"))
    assert len(copies) > 15
    assert stored(state) == set(), "the run and all its blobs are gone"
    for copy in copies:
        assert referred_to(copy) <= stored(copy), "what the rows refer to is there"
        old = time.time() - UPLOAD_SECONDS - 60
        for path in (copy / "blobs").glob("*/*"):
            os.utime(path, (old, old))
        with open_storage(copy) as storage:
            storage.garbage_collector.sweep()
        assert stored(copy) == referred_to(copy), "what the kill left is swept away"


def test_garbage_collection_spares_uploads_in_progress_and_referenced_blobs(state: Path) -> None:
    with open_storage(state) as storage:
        begin(storage)
        fresh, given_up = storage.blobs.put_bytes(b"of a bundle"), storage.blobs.put_bytes(b"given up")
        old = time.time() - UPLOAD_SECONDS - 60
        for path in (state / "blobs").glob("??/*"):
            if path.name != fresh.sha256:
                os.utime(path, (old, old))
        storage.garbage_collector.sweep()
        assert storage.blobs.has(fresh)
        assert not storage.blobs.has(given_up)
        assert referred_to(state) < stored(state)


def test_a_blob_that_a_commit_is_about_to_refer_to_stays(state: Path) -> None:
    with open_storage(state) as storage:
        ref = ref_of_bytes(b"model")
        storage.pins.add("a commit", [ref.sha256])
        storage.blobs.put_bytes(b"model")
        assert storage.garbage_collector.collect([ref]) == 0
        assert storage.blobs.has(ref)
        storage.pins.drop("a commit")
        assert storage.garbage_collector.collect([ref]) == ref.size
        assert not storage.blobs.has(ref)


def test_retention_keeps_the_newest_and_every_nth_round() -> None:
    assert [round_ for round_ in range(31) if Retention(last=3, every=10).keeps(round_, 30)] == [0, 10, 20, 28, 29, 30]
    for fields in ({"last": 0}, {"last": 2_000_000}, {"every": -1}):
        with pytest.raises(InvalidInput, match=r"^keep_(last|every) is "):
            Retention(**{"last": 20, "every": 100, **fields})


# Over the wire


def rounds_of(fleet: Fleet, rounds: int, **retention: Any) -> None:
    device = fleet.device("cam-1")
    session = device.connect()
    fleet.start("run", rounds=rounds, **retention)
    for round_ in range(1, rounds + 1):
        device.submit(session.assignment(), model_bytes(float(round_)))
    list(fleet.operator.watch("run"))


def prune(fleet: Fleet, run: str, **retention: int) -> control_pb2.PruneRunReply:
    request = control_pb2.PruneRunRequest(run=run, **retention)
    reply = ask(fleet.operator.control.PruneRun, request)
    assert isinstance(reply, control_pb2.PruneRunReply)
    return reply


def test_a_run_retains_the_configured_models(fleet: Fleet) -> None:
    rounds_of(fleet, 9, keep_last=2, keep_every=4)
    rounds = fleet.operator.rounds("run")
    assert [entry.round for entry in rounds] == list(range(1, 10))
    kept = {entry.round: entry.model for entry in rounds if entry.HasField("model")}
    assert sorted(kept) == [4, 8, 9]
    assert fleet.operator.model(kept[4]) == model_bytes(4.0)
    with pytest.raises(Exception, match=r"there is no blob .*; if it was a global model, its run may have deleted it"):
        fleet.operator.model(to_message(ref_of_bytes(model_bytes(3.0))))
    pruned = prune(fleet, "run", keep_last=1, keep_every=0)
    assert (pruned.models, pruned.bytes) == (2, 2 * len(model_bytes(0.0)))
    assert [entry.round for entry in fleet.operator.rounds("run") if entry.HasField("model")] == [9]
    with refused(NotFound, "run", "other"):
        prune(fleet, "other", keep_last=1, keep_every=0)
    with refused(InvalidInput, "keep_last", 0):
        prune(fleet, "run", keep_last=0, keep_every=0)


def test_only_a_run_that_has_ended_is_deleted_with_all_that_is_its_own(fleet: Fleet) -> None:
    rounds_of(fleet, 2, keep_last=9, keep_every=0)
    fleet.start("other", bundle=coordinator.make_bundle(start=7.0), minimum_devices=9)
    with pytest.raises(WrongState, match="'other' is running; stop it"):
        ask(fleet.operator.control.DeleteRun, control_pb2.DeleteRunRequest(run="other"))
    reply = ask(fleet.operator.control.DeleteRun, control_pb2.DeleteRunRequest(run="run"))
    shared = (
        coordinator.blobs_of(coordinator.make_bundle()).keys()
        & coordinator.blobs_of(coordinator.make_bundle(start=7.0)).keys()
    )
    own = [ref.size for ref in coordinator.blobs_of(coordinator.make_bundle()) if ref not in shared]
    assert reply.bytes == sum(own) + 2 * len(model_bytes(0.0))
    with refused(NotFound, "run", "run"):
        fleet.operator.run("run")
    assert stored(fleet.state) == {ref.sha256 for ref in coordinator.blobs_of(coordinator.make_bundle(start=7.0))}
    assert fleet.operator.run("other").status == "running"
    fleet.start("run")
