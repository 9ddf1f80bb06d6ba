"""Starting and following runs over real TLS."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from moonfed.blobs import BlobRef, ref_of_bytes
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.cli.control_client import Console
from moonfed.coordinator.records import RunEvent
from moonfed.coordinator.rpc import convert_control
from moonfed.coordinator.rpc.convert_settings import run_settings
from moonfed.errors import (
    AlreadyExists,
    Corrupt,
    InvalidInput,
    MoonfedError,
    NotFound,
    ResourceExhausted,
    SchemaMismatch,
    Unavailable,
)
from moonfed.manifest import MANIFEST_FILE
from moonfed.transport import to_message
from moonfed.v1 import blob_pb2, control_pb2
from tests.coordinator.conftest import Fleet
from tests.support import coordinator
from tests.support.coordinator import ask, model_bytes


def start(fleet: Fleet, **fields: Any) -> control_pb2.Run:  # noqa: ANN401
    request = control_pb2.StartRunRequest(**{"settings": coordinator.settings(), **fields})
    reply = ask(fleet.operator.control.StartRun, request)
    assert isinstance(reply, control_pb2.Run)
    return reply


def console(fleet: Fleet) -> Console:
    return Console(fleet.operator.control, lambda: Unavailable("away"))


def upload(fleet: Fleet, content: bytes) -> str:
    path = fleet.tmp / "blob"
    path.write_bytes(content)
    console(fleet).upload({ref_of_bytes(content): path})
    return ref_of_bytes(content).sha256


def test_runs_are_named_after_the_bundle(fleet: Fleet) -> None:
    names = [fleet.start("").run for _ in range(3)]
    assert names == ["digits", "digits-2", "digits-3"]
    with pytest.raises(AlreadyExists, match="'digits'"):
        fleet.start("digits")
    with pytest.raises(InvalidInput, match=r"name is '\.\./digits'"):
        fleet.start("../digits")
    listed = ask(fleet.operator.control.ListRuns, control_pb2.ListRunsRequest()).runs
    assert [run.run for run in listed] == names
    with pytest.raises(NotFound, match="'other'"):
        fleet.operator.run("other")


def test_settings_survive_conversion(fleet: Fleet) -> None:
    given = coordinator.settings(
        5,
        cohort=control_pb2.Amount(count=7),
        minimum_devices=3,
        quorum=control_pb2.Amount(fraction=0.25),
        seed=2**64 - 1,
        downlink_encoding="bfloat16+zstd",
        uplink_encoding="int8",
        retention=control_pb2.Retention(last=3, every=7),
    )
    fleet.start("run")
    started = start(fleet, manifest=coordinator.make_bundle().ref.sha256, settings=given)
    assert started.settings == given
    assert fleet.operator.run(started.run) == started


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"cohort": control_pb2.Amount()}, "cohort is 0"),
        ({"deadline_seconds": float("nan")}, "deadline_seconds is nan"),
        ({"minimum_devices": 0}, "minimum_devices is 0"),
    ],
)
def test_invalid_settings_are_rejected(fleet: Fleet, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        start(fleet, settings=coordinator.settings(**{"rounds": 1, **fields}))


def test_a_bundle_that_is_not_whole_starts_nothing(fleet: Fleet) -> None:
    bundle = coordinator.make_bundle()
    with pytest.raises(NotFound):
        start(fleet, manifest=bundle.ref.sha256)
    upload(fleet, bundle.contents[MANIFEST_FILE])
    with pytest.raises(NotFound, match=r"plan\.pt.* was not uploaded|initial\.safetensors|model\.onnx"):
        start(fleet, manifest=bundle.ref.sha256)
    with pytest.raises(InvalidInput, match="not JSON"):
        start(fleet, manifest=upload(fleet, b"not a manifest"))


def test_a_run_starts_from_given_weights_that_fit(fleet: Fleet) -> None:
    bundle, path = coordinator.make_bundle(), fleet.tmp / "given.safetensors"
    path.write_bytes(model_bytes(4.0))
    chosen = run_settings(coordinator.settings())
    run = console(fleet).start_run("given", bundle, path, chosen)
    assert fleet.operator.model(run.model) == path.read_bytes()
    path.write_bytes(model_bytes(4.0, coordinator.SPECS[:2]))
    with pytest.raises(SchemaMismatch, match=r"'norm\.running_mean' is missing"):
        console(fleet).start_run("other", bundle, path, chosen)
    with pytest.raises(SchemaMismatch, match=r"'norm\.running_mean' is missing"):
        start(fleet, manifest=bundle.ref.sha256, model=upload(fleet, path.read_bytes()))
    with pytest.raises(NotFound, match="'other'"):
        fleet.operator.run("other")


def test_an_upload_is_resumed_checked_and_idempotent(fleet: Fleet) -> None:
    content = b"x" * 3_000_000
    ref = ref_of_bytes(content)
    header = control_pb2.UploadRequest(header=control_pb2.UploadHeader(blobs=[to_message(ref)]))
    commit = control_pb2.UploadRequest(commit=blob_pb2.Commit())

    def part(data: bytes, offset: int = 0) -> control_pb2.UploadRequest:
        return control_pb2.UploadRequest(part=blob_pb2.Part(sha256=ref.sha256, offset=offset, data=data))

    def send(*requests: control_pb2.UploadRequest) -> list[control_pb2.UploadReply]:
        call = fleet.operator.control.Upload
        replies = ask(lambda r, timeout: list(call(iter(r), timeout=timeout)), [header, *requests])
        assert isinstance(replies, list)
        return replies

    with pytest.raises(InvalidInput, match="without a commit"):
        send(part(content[:1_000_000]))
    with pytest.raises(InvalidInput, match="1000000 was expected"):
        send(part(content[:10]))
    path = fleet.tmp / "blob"
    path.write_bytes(content)
    console(fleet).upload({ref: path})
    assert fleet.operator.model(to_message(ref)) == content
    replies = send(commit)
    assert replies[0].resume.offsets[ref.sha256] == len(content)
    assert list(replies[1].stored.blobs) == [to_message(ref)]
    wrong = replace(ref, sha256="0" * 64)
    header.header.blobs[0].CopyFrom(to_message(wrong))
    first = control_pb2.UploadRequest(part=blob_pb2.Part(sha256=wrong.sha256, offset=0, data=content[:2_000_000]))
    second = control_pb2.UploadRequest(
        part=blob_pb2.Part(sha256=wrong.sha256, offset=2_000_000, data=content[2_000_000:])
    )
    with pytest.raises(Corrupt, match="another sha256"):
        send(first, second, commit)
    with pytest.raises(NotFound):
        ask(
            lambda r, timeout: list(fleet.operator.control.Fetch(r, timeout=timeout)),
            blob_pb2.FetchRequest(sha256="0" * 64),
        )


def test_an_upload_that_nobody_confirmed_is_sent_again(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    silent, stored = [True], convert_control.stored

    def forgetful(refs: Sequence[BlobRef]) -> control_pb2.UploadReply:
        return stored([]) if silent and silent.pop() else stored(refs)

    monkeypatch.setattr(convert_control, "stored", forgetful)
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    upload(fleet, b"content")
    assert len(pauses) == 1, "the first attempt ended well for gRPC, but without the word that the file is stored"


def test_metrics_are_kept_for_models_that_exist(fleet: Fleet) -> None:
    fleet.start()
    watching = fleet.operator.watch("run")
    next(watching)

    def record(round_: int, **metrics: float) -> None:
        request = control_pb2.RecordMetricsRequest(run="run", round=round_, metrics=metrics)
        ask(fleet.operator.control.RecordMetrics, request)

    record(0, accuracy=0.125)
    event = next(watching)
    assert (event.kind, dict(event.metrics)) == (control_pb2.EVENT_KIND_METRICS, {"accuracy": 0.125})
    assert dict(fleet.operator.run("run").initial_metrics) == {"accuracy": 0.125}
    with pytest.raises(NotFound, match="no global model 1"):
        record(1, accuracy=0.5)
    with pytest.raises(InvalidInput, match="metric 'accuracy' is inf"):
        record(0, accuracy=float("inf"))


def test_watching_shows_a_whole_run_in_order(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    fleet.start(rounds=1)
    watching = fleet.operator.watch("run")
    assert next(watching).run.waiting == "waiting for 1 more device: 0 online, 1 needed"
    session = device.connect()
    device.submit(session.assignment(), model_bytes(1.0))
    kinds = [control_pb2.EventKind.Name(event.kind).removeprefix("EVENT_KIND_").lower() for event in watching]
    assert kinds == ["round_opened", "update_received", "round_committed", "metrics", "ended"]


def test_a_run_of_any_length_fits_into_a_message_and_its_rounds_are_streamed(fleet: Fleet) -> None:
    fleet.start()
    devices = [f"a-device-with-a-rather-long-name-{number:06}" for number in range(10_000)]
    store = fleet.state / "coordinator.db"
    rest = ("[]", "late", 0, 0, "[]", "{}")
    rounds = [("run", 0, number, "abandoned", json.dumps(devices), *rest) for number in range(60)]
    with closing(sqlite3.connect(store, timeout=20)) as connection:
        connection.executemany("INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rounds)
        connection.commit()
    assert fleet.operator.run("run").run == "run"
    assert next(fleet.operator.watch("run")).run.run == "run"
    found = fleet.operator.rounds("run")
    assert [entry.attempt for entry in found] == list(range(60))
    assert list(found[-1].missing) == devices
    with pytest.raises(NotFound, match="'other'"):
        fleet.operator.rounds("other")


def test_following_resumes_after_falling_behind_and_ends_on_resource_exhaustion(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[MoonfedError] = [Unavailable("this watcher fell behind; watch again"), ResourceExhausted("too much")]

    async def fail(self: OperatorApi, run: str) -> AsyncGenerator[RunEvent, None]:
        yield RunEvent(kind="waiting", reason="a reason")
        raise problems.pop(0)

    monkeypatch.setattr(OperatorApi, "watch", fail)
    told: list[MoonfedError] = []
    with pytest.raises(ResourceExhausted, match="too much"):
        list(console(fleet).follow("run", told.append))
    assert len(told) == 1


def test_following_ends_at_once_on_a_final_error(fleet: Fleet) -> None:
    told: list[MoonfedError] = []
    with pytest.raises(NotFound, match="'nothing'"):
        list(console(fleet).follow("nothing", told.append))
    assert not told
