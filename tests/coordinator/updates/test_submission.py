"""Updates over real TLS: rejection, resumption, and counting once."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from sqlalchemy.exc import OperationalError

from moonfed.blobs.store import BlobRef, Incoming, ref_of_bytes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.rpc import flow_control
from moonfed.coordinator.storage.device_reports import DeviceReports
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.updates.quota import TRIES
from moonfed.coordinator.updates.transfer import Transfer, Transfers
from moonfed.errors import AlreadyExists, Corrupt, InvalidInput, NotFound, ResourceExhausted, Unavailable, WrongState
from moonfed.transport.client import to_message
from moonfed.transport.grpc_status import from_rpc_error
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2
from tests.coordinator.conftest import FULL, Fleet, two_devices
from tests.support.coordinator import WAIT, Device, ask, model_bytes, model_values

Until = Callable[[Callable[[], bool]], None]


def test_a_round_is_the_weighted_mean_of_its_updates(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet, rounds=2)
    work = [one.assignment() for one in sessions]
    assert work[0].training.hyperparameters["learning_rate"] == 0.1
    assert (work[0].training.epochs, work[0].training.batch_size, work[0].seed) == (2, 8, 7)
    devices[0].submit(work[0], model_bytes(1.0), samples=30, metrics={"loss": 2.0, "holdout_accuracy": 0.5})
    held_out = {"loss": 4.0, "holdout_accuracy": 0.9, "holdout_samples": 20.0}
    devices[1].submit(work[1], model_bytes(5.0), samples=10, metrics=held_out)
    second = sessions[0].assignment()
    assert second.round == 2
    content = fleet.operator.model(second.blobs["model"])
    np.testing.assert_array_equal(model_values(content), np.float32(2.0))
    run = fleet.operator.run("run")
    (done,) = fleet.operator.rounds("run")
    assert done.counted == ["cam-1", "cam-2"]
    assert dict(done.metrics) == {"train_loss": 2.5}
    # the held-out samples scored the model that the round began with
    assert dict(run.initial_metrics) == {"holdout_accuracy": 0.9, "holdout_samples": 20.0}
    assert not list((fleet.state / "spool").rglob("updates/*/*")), "updates of a committed round are gone"


def test_an_interrupted_upload_resumes(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work, content = sessions[0].assignment(), model_bytes(1.0)
    with pytest.raises(InvalidInput, match="without a commit"):
        devices[0].submit(work, content, send=100, commit=False)
    assert not fleet.operator.run("run").open_round.reported
    with pytest.raises(InvalidInput, match=f"100 of {len(content)} bytes"):
        devices[0].submit(work, content, send=100)
    replies = devices[0].submit(work, content)
    assert dict(replies[0].resume.offsets) == {ref_of_bytes(content).sha256: 100}
    assert replies[1].receipt.sha256["model"] == ref_of_bytes(content).sha256
    assert fleet.operator.run("run").open_round.reported == ["cam-1"]


def test_all_the_bytes_without_a_commit_do_not_count(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work, content = sessions[0].assignment(), model_bytes(1.0)
    with pytest.raises(InvalidInput, match="the stream ended without a commit; the parts received are kept"):
        devices[0].submit(work, content, commit=False)
    assert not fleet.operator.run("run").open_round.reported
    replies = devices[0].submit(work, content)
    assert dict(replies[0].resume.offsets) == {ref_of_bytes(content).sha256: len(content)}
    assert fleet.operator.run("run").open_round.reported == ["cam-1"]


def begun(device: Device, work: fleet_pb2.Assignment, content: bytes, send: int) -> Any:
    """An upload that has sent some bytes and stays open: its call, its replies, and its next messages."""
    sha256, more = ref_of_bytes(content).sha256, queue.SimpleQueue[fleet_pb2.SubmitRequest | None]()
    more.put(fleet_pb2.SubmitRequest(header=device.header(work, content)))
    if send:
        more.put(fleet_pb2.SubmitRequest(part=blob_pb2.Part(sha256=sha256, offset=0, data=content[:send])))
    call = device.fleet.Submit(iter(more.get, None), timeout=WAIT)
    assert next(iter(call)).HasField("resume")
    return call, more


def held(fleet: Fleet) -> list[int]:
    """Bytes of the updates that are being received."""
    return [path.stat().st_size for path in (fleet.state / "spool").rglob("incoming/*/*")]


def test_a_device_that_dies_during_an_upload_can_resume_it(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work, content = sessions[0].assignment(), model_bytes(1.0)
    call, more = begun(devices[0], work, content, 70)
    call.cancel()
    more.put(None)
    assert not fleet.operator.run("run").open_round.reported
    replies = devices[0].submit(work, content)
    assert replies[0].resume.offsets[ref_of_bytes(content).sha256] in (0, 70), "the part may have died with it"
    assert fleet.operator.run("run").open_round.reported == ["cam-1"]


def test_a_device_that_stalls_during_an_upload_is_told_to_retry(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    devices, sessions = two_devices(fleet)
    work, content = sessions[0].assignment(), model_bytes(1.0)
    monkeypatch.setattr(flow_control, "PART_SECONDS", 1.5)  # in which the part arrives
    call, more = begun(devices[0], work, content, 70)
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    more.put(None)
    error = from_rpc_error(caught.value)
    assert isinstance(error, Unavailable)
    assert str(error) == "the upload took too long; it resumes when it is sent again"
    monkeypatch.undo()
    assert devices[0].submit(work, content)[0].resume.offsets[ref_of_bytes(content).sha256] == 70


def test_a_newer_stream_of_the_same_update_takes_over(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work, content = sessions[0].assignment(), model_bytes(1.0)
    call, more = begun(devices[0], work, content, 70)
    devices[0].submit(work, content)
    more.put(fleet_pb2.SubmitRequest(commit=blob_pb2.Commit()))
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    more.put(None)
    assert isinstance(from_rpc_error(caught.value), WrongState)
    assert fleet.operator.run("run").open_round.reported == ["cam-1"]


@pytest.mark.parametrize("sent", [0, 70])
def test_the_newer_of_two_concurrent_updates_continues(fleet: Fleet, sent: int) -> None:
    devices, sessions = two_devices(fleet)
    work, first, second = sessions[0].assignment(), model_bytes(1.0), model_bytes(9.0)
    call, more = begun(devices[0], work, second, sent)
    with pytest.raises(InvalidInput, match="without a commit"):
        devices[0].submit(work, first, send=10, commit=False)
    part = blob_pb2.Part(sha256=ref_of_bytes(second).sha256, offset=sent, data=second[sent:])
    more.put(fleet_pb2.SubmitRequest(part=part))
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    more.put(None)
    assert isinstance(from_rpc_error(caught.value), WrongState)
    assert held(fleet) == [10], "one update at a time is received from one device"
    devices[0].submit(work, first)
    devices[1].submit(sessions[1].assignment(), model_bytes(1.0))
    ended = list(fleet.operator.watch("run"))[-1].run
    assert fleet.operator.rounds("run")[0].counted == ["cam-1", "cam-2"]
    np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(1.0))


def test_an_upload_ends_with_its_round(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work, content = sessions[0].assignment(), model_bytes(1.0)
    call, more = begun(devices[0], work, content, 70)
    ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="run"))
    part = blob_pb2.Part(sha256=ref_of_bytes(content).sha256, offset=70, data=content[70:])
    more.put(fleet_pb2.SubmitRequest(part=part))
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    more.put(None)
    assert isinstance(from_rpc_error(caught.value), WrongState)
    assert not held(fleet), "the slot is free"


@pytest.mark.parametrize(
    ("place", "name", "error"),
    [
        (
            DeviceReports,
            "record_all",
            OperationalError("INSERT", (), sqlite3.OperationalError("database or disk is full")),
        ),
        (Spool, "put", FULL),
        (Spool, "sync", FULL),
        (Incoming, "finish", FULL),
        (Incoming, "__init__", FULL),
    ],
)
def test_a_full_disk_gives_no_receipt_and_the_update_counts_when_space_returns(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, place: type[object], name: str, error: Exception
) -> None:
    devices, sessions = two_devices(fleet)
    work, content = sessions[0].assignment(), model_bytes(1.0)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as full:
        full.setattr(place, name, fail)
        with pytest.raises(ResourceExhausted, match=r"disk is full$"):
            devices[0].submit(work, content)
    assert not fleet.operator.run("run").open_round.reported
    devices[0].submit(work, content)
    assert fleet.operator.run("run").open_round.reported == ["cam-1"]


def test_a_device_that_reconnects_while_its_update_is_committed_gets_its_receipt(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    placing, go_on, began, begin, put = (
        threading.Event(),
        threading.Event(),
        [0],
        Transfers.begin,
        Spool.put,
    )

    async def counted(self: Transfers, files: Mapping[BlobRef, Path]) -> tuple[Transfer, dict[str, int]]:
        began[0] += 1
        return await begin(self, files)

    def slow(self: Spool, attempt: AttemptId, device: str, checked: Mapping[str, Path]) -> None:
        placing.set()
        go_on.wait(WAIT)
        put(self, attempt, device, checked)

    monkeypatch.setattr(Transfers, "begin", counted)
    monkeypatch.setattr(Spool, "put", slow)
    device, content = fleet.device("cam-1"), model_bytes(1.0)
    fleet.start()
    work = device.connect().assignment()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(device.submit, work, content)
        assert placing.wait(WAIT)
        second = threads.submit(device.submit, work, content)
        while began[0] < 2:
            time.sleep(0.02)
        go_on.set()
        assert first.result(WAIT)[-1].receipt == second.result(WAIT)[-1].receipt
        assert second.result()[0].resume.offsets[ref_of_bytes(content).sha256] == len(content), "all is held"
    list(fleet.operator.watch("run"))
    assert not list((fleet.state / "spool").glob("*/*"))


def test_an_upload_that_begins_while_its_round_ends_leaves_nothing(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended, begin = threading.Event(), threading.Event(), Transfers.begin

    async def late(self: Transfers, files: Mapping[BlobRef, Path]) -> tuple[Transfer, dict[str, int]]:
        begun.set()
        await asyncio.to_thread(ended.wait, WAIT)
        return await begin(self, files)

    devices, sessions = two_devices(fleet)
    work = sessions[0].assignment()
    monkeypatch.setattr(Transfers, "begin", late)
    with ThreadPoolExecutor(1) as threads:
        submitting = threads.submit(devices[0].submit, work, model_bytes(1.0))
        assert begun.wait(WAIT)
        ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="run"))
        ended.set()
        with pytest.raises(WrongState, match="has been stopped"):
            submitting.result(WAIT)
    assert not list((fleet.state / "spool").glob("*/*"))


def test_bytes_that_differ_from_the_declaration_do_not_count(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work, content, other = sessions[0].assignment(), model_bytes(1.0), model_bytes(2.0)
    declared = {"model": to_message(ref_of_bytes(other))}
    header = devices[0].header(work, content, blobs=declared)
    part = blob_pb2.Part(sha256=ref_of_bytes(other).sha256, offset=0, data=content)
    requests = [
        fleet_pb2.SubmitRequest(header=header),
        fleet_pb2.SubmitRequest(part=part),
        fleet_pb2.SubmitRequest(commit=blob_pb2.Commit()),
    ]
    with pytest.raises(Corrupt, match="send them again"):
        ask(lambda _, timeout: list(devices[0].fleet.Submit(iter(requests), timeout=timeout)), None)
    assert not fleet.operator.run("run").open_round.reported
    devices[0].submit(work, other)
    assert fleet.operator.run("run").open_round.reported == ["cam-1"]


def test_a_device_that_sends_too_many_bytes_for_one_round_is_stopped_and_the_others_are_not(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work, size = sessions[0].assignment(), 60_000  # as an update's file may have: its header may be long
    declared = ref_of_bytes(b"declared" * (size // 8))
    header = devices[0].header(work, b"", blobs={"model": to_message(declared)})
    requests = [
        fleet_pb2.SubmitRequest(header=header),
        fleet_pb2.SubmitRequest(part=blob_pb2.Part(sha256=declared.sha256, offset=0, data=b"x" * size)),
        fleet_pb2.SubmitRequest(commit=blob_pb2.Commit()),
    ]

    def send() -> None:
        ask(lambda _, timeout: list(devices[0].fleet.Submit(iter(requests), timeout=timeout)), None)

    for _ in range(4):
        with pytest.raises(Corrupt):
            send()
    with pytest.raises(
        ResourceExhausted, match=r"'cam-1' would have sent 300000 bytes for round 1, .* 4 times the largest"
    ):
        send()
    devices[1].submit(sessions[1].assignment(), model_bytes(1.0))
    assert fleet.operator.run("run").round == 0
    assert fleet.operator.run("run").open_round.reported == ["cam-2"]


def test_an_update_that_could_not_be_stored_does_not_count_against_its_device(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the object store each attempt moves the received files and fails, so the next one sends all again."""
    content = model_bytes(1.0)
    monkeypatch.setattr("moonfed.coordinator.runs.driver.largest_files", lambda *_: {"model": len(content)})
    devices, sessions = two_devices(fleet)
    work = sessions[0].assignment()
    put = Spool.put

    def away(*arguments: Any) -> None:
        put(*arguments)
        raise Unavailable("the object store s3://models cannot be used: it does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(Spool, "put", away)
        for _ in range(2 * TRIES):
            with pytest.raises(Unavailable, match="the object store s3://models cannot be used"):
                devices[0].submit(work, content)
    devices[0].submit(work, content)
    assert fleet.operator.run("run").open_round.reported == ["cam-1"]


def test_the_same_update_again_gets_the_same_receipt_and_counts_once(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work, content = sessions[0].assignment(), model_bytes(1.0)
    first = devices[0].submit(work, content)[-1].receipt
    replies = devices[0].submit(work, content)
    assert dict(replies[0].resume.offsets) == {ref_of_bytes(content).sha256: len(content)}, "nothing is sent again"
    assert replies[-1].receipt == first
    devices[1].submit(sessions[1].assignment(), model_bytes(4.0))
    ended = list(fleet.operator.watch("run"))[-1].run
    assert fleet.operator.rounds("run")[0].counted == ["cam-1", "cam-2"]
    np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(2.5))
    assert devices[0].submit(work, content)[-1].receipt == first, "even after the round, and the run, are over"


def test_a_different_second_update_is_rejected_and_the_first_stands(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work = sessions[0].assignment()
    devices[0].submit(work, model_bytes(1.0))
    with pytest.raises(AlreadyExists, match="different update of 'cam-1'"):
        devices[0].submit(work, model_bytes(2.0))
    devices[1].submit(sessions[1].assignment(), model_bytes(1.0))
    ended = list(fleet.operator.watch("run"))[-1].run
    np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(1.0))
    with pytest.raises(AlreadyExists, match="different update of 'cam-1'"):
        devices[0].submit(work, model_bytes(2.0))


def test_an_update_for_a_stale_round_is_rejected_with_the_current_round(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet, rounds=2)
    work = [one.assignment() for one in sessions]
    with pytest.raises(WrongState, match="attempt 2 is not open"):
        devices[0].submit(work[0], model_bytes(1.0), attempt=2)
    devices[0].submit(work[0], model_bytes(1.0))
    devices[1].submit(work[1], model_bytes(1.0))
    assert sessions[0].assignment().round == 2
    with pytest.raises(AlreadyExists):
        devices[0].submit(work[0], model_bytes(9.0))
    with pytest.raises(NotFound, match="'other'"):
        devices[0].submit(work[0], model_bytes(9.0), run="other")
    late = fleet_pb2.ReportRequest(device="cam-1", run="run", round=1, attempt=1, fraction=0.5)
    reply = ask(devices[0].fleet.Report, late)
    assert reply.stop
    assert "is at round 2" in reply.reason


def test_a_device_outside_the_cohort_is_rejected(fleet: Fleet) -> None:
    _, sessions = two_devices(fleet)
    work = sessions[0].assignment()
    with pytest.raises(WrongState, match="'cam-3' is not in"):
        fleet.device("cam-3").submit(work, model_bytes(1.0))
