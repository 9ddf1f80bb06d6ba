"""A device that is revoked at one replica is cut off at the other, in the middle of an upload, and stays so."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import grpc
import pytest

from moonfed.errors import NotFound, Unavailable, Untrusted, WrongState
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity, new_key, signing_request
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2
from tests.faults.fleet import Coordinators, bundle_of, enrol_all
from tests.replicas.pair import two_replicas
from tests.support.coordinator import Device, ask, model_bytes, rejected
from tests.support.operators import audit_records, calls_of
from tests.support.postgresql import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.usefixtures("forked_programs")]
BUNDLE = bundle_of(1000)
OPERATE = (sys.executable, "-c", "from moonfed.coordinator.cli.program import main; main()")


@pytest.fixture(scope="module")
def two_coordinators(
    postgresql_server: Server, store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Coordinators]]:
    """Two replicas with a copy of one authority, and the enrolled devices `cam-1` to `cam-5`."""
    tmp_path = tmp_path_factory.mktemp("revocation")
    with two_replicas(
        tmp_path, postgresql_server.new_database(), store_url, [f"cam-{number}" for number in range(1, 6)]
    ) as replicas:
        yield replicas


@contextmanager
def device_at(replica: Coordinators, enrolled_at: Coordinators, name: str) -> Iterator[Device]:
    identity = load_identity(enrolled_at.tmp / name)
    with transport.open_channel(f"127.0.0.1:{replica.ports[0]}", identity) as channel:
        yield Device(name, channel)


def fetch(device: Device, sha256: str) -> bytes:
    request = blob_pb2.FetchRequest(device=device.name, sha256=sha256)
    parts = ask(lambda asked, timeout: list(device.fleet.Fetch(asked, timeout=timeout)), request)
    return b"".join(part.data for part in parts)


def operate(replica: Coordinators, *words: str) -> None:
    command = [*OPERATE, *words, "--identity", str(replica.state / "operator")]
    subprocess.run(command, check=True, timeout=60)


def stop_run(replica: Coordinators, run: str) -> None:
    calls = replica.operator()
    with calls.channel:
        ask(calls.control.StopRun, control_pb2.StopRunRequest(run=run))


def test_a_device_is_cut_off_at_the_other_replica_in_the_middle_of_an_upload(
    two_coordinators: list[Coordinators],
) -> None:
    first, second = two_coordinators
    first.start_run("run", BUNDLE, 1, 2)
    with device_at(second, first, "cam-1") as device, device_at(second, first, "cam-2") as other:
        session, staying = device.connect(), other.connect()
        work, others = session.assignment(), staying.assignment()
        upload = device.begin_upload(work, model_bytes(1.0, BUNDLE.manifest.tensors))
        operate(first, "device", "revoke", "cam-1")
        with pytest.raises(Unavailable):
            session.next()
        with pytest.raises(Unavailable):
            ask(lambda _request, timeout: next(upload), None)
        assert staying.call.is_active()
        assert other.report(others, 0.5).stop is False
        open_round = second.run("run").open_round
        assert (list(open_round.cohort), list(open_round.reported)) == (["cam-1", "cam-2"], [])
        stop_run(first, "run")  # or its open round would take the other tests' devices for the revoked one
    renewal = fleet_pb2.RenewRequest(device="cam-1", signing_request=signing_request(new_key(), "cam-1"))
    for replica in (first, second):
        for _ in range(2):
            with device_at(replica, first, "cam-1") as device:
                rejected(device.connect, Untrusted, r"device 'cam-1' was revoked")
                rejected(lambda call=device.fleet.Renew: ask(call, renewal), Untrusted, "was revoked")  # type: ignore[misc]
            replica.kill()
            replica.serve()


def test_an_operator_is_cut_off_at_the_other_replica(two_coordinators: list[Coordinators]) -> None:
    first, second = two_coordinators
    first.start_run("watched", BUNDLE, 1, 9)
    identities = []
    for name in ("ann", "bob"):
        directory = first.tmp / name
        operate(first, "operator", "create", name, "--role", "viewer", "--output", str(directory))
        identities.append(replace(load_identity(directory), address=f"127.0.0.1:{second.ports[0]}"))
    ann, bob = map(calls_of, identities)
    with ann.channel, bob.channel:
        watched, staying = ann.watch("watched"), bob.watch("watched")
        assert next(watched).run.run == next(staying).run.run == "watched"
        operate(first, "operator", "revoke", "ann")
        with pytest.raises(grpc.RpcError):
            list(watched)
        assert staying.is_active()  # type: ignore[attr-defined]  # it is a call
    second.kill()
    second.serve()
    for replica in two_coordinators:
        again = calls_of(replace(identities[0], address=f"127.0.0.1:{replica.ports[0]}"))
        with again.channel:
            request = control_pb2.ListRunsRequest()
            rejected(
                lambda call=again.control.ListRuns, asked=request: ask(call, asked),  # type: ignore[misc]
                Untrusted,
                r"the certificate \w+ of operator 'ann' was revoked",
            )
    found = {(record.call, record.outcome) for record in audit_records(second.operator(), name="ann")}
    assert found == {("ListRuns", "denied")}


def test_a_label_reaches_the_replica_that_drives_the_run(two_coordinators: list[Coordinators]) -> None:
    first, second = two_coordinators
    first.start_run("labelled", BUNDLE, 1, 1, labels={"site": "ulm"}, trusted_labels=True)
    with device_at(second, first, "cam-3") as liar, device_at(second, first, "cam-4") as honest:
        liar.connect(labels={"site": "ulm"})
        session = honest.connect()
        operate(second, "device", "label", "cam-4", "site=ulm")
        assert session.assignment().run == "labelled"
        assert list(second.run("labelled").open_round.cohort) == ["cam-4"]


def test_a_device_is_renamed_at_the_other_replica(two_coordinators: list[Coordinators]) -> None:
    first, second = two_coordinators
    with device_at(second, first, "cam-5") as device:
        session = device.connect()
        operate(first, "device", "rename", "cam-5", "gate")
        with pytest.raises(Unavailable):
            session.next()
        calls = second.operator()
        with calls.channel:
            listed = calls.devices()
        assert [entry.device for entry in listed][-2:] == ["cam-4", "gate"]


def test_a_removed_devices_name_gives_no_access_at_either_replica(two_coordinators: list[Coordinators]) -> None:
    first, second = two_coordinators
    enrol_all(first, ["cam-6", "cam-7"])
    bonn = {"site": "bonn"}  # devices of the other tests may not be known to be offline yet
    first.start_run("private", BUNDLE, 1, 2, labels=bonn)
    with device_at(second, first, "cam-6") as device, device_at(second, first, "cam-7") as other:
        sessions = [device.connect(labels=bonn), other.connect(labels=bonn)]
        work = [session.assignment() for session in sessions]
        sha256 = work[0].blobs["model"].sha256
        assert fetch(device, sha256) == fetch(other, sha256)
        operate(first, "device", "remove", "cam-6", "--yes")
        shutil.rmtree(first.tmp / "cam-6")
        enrol_all(first, ["cam-6"])
        for replica in (second, first):
            with device_at(replica, first, "cam-6") as new:
                rejected(partial(fetch, new, sha256), NotFound, "device 'cam-6' participates in")
        while list(second.run("private").open_round.declined) != ["cam-6"]:
            time.sleep(0.05)
        with device_at(first, first, "cam-6") as new, pytest.raises(WrongState, match="'cam-6'"):
            new.submit(work[0], model_bytes(1000.0, BUNDLE.manifest.tensors))
    for replica in (first, second):
        replica.kill()
        replica.serve()
        with device_at(replica, first, "cam-6") as new:
            rejected(partial(fetch, new, sha256), NotFound, "belongs to no run")
