"""Attacks over the network on a coordinator's real process, while honest devices must be served."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import grpc
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from benchmarks.load.attackers import is_closed, silent_connection
from moonfed.errors import AlreadyExists, NotFound, Unavailable, Untrusted
from moonfed.observability.flood_log import LINES
from moonfed.transport.identity import load_identity, new_key, read_certificate, signing_request
from moonfed.transport.join_token import parse_token
from moonfed.v1 import blob_pb2, control_pb2, enrolment_pb2, enrolment_pb2_grpc, fleet_pb2
from moonfed.version import CONTRACT_VERSION
from tests.faults.fleet import (
    SAMPLES,
    Coordinators,
    bundle_of,
    devices_at,
    enrol_all,
    until,
    whole_run,
)
from tests.support import coordinator
from tests.support.coordinator import WAIT, Device, ask, model_bytes, model_values, rejected
from tests.support.forked_process import PATCHES

pytestmark = pytest.mark.slow

LARGE = 2_000_000  # elements; such a model exceeds the bytes that gRPC sends ahead
FETCHES = 24  # concurrent downloads; a device may have 32 calls
ATTACKERS = ["attacker-1", "attacker-2"]  # whose downloads together exceed what slow ones may have under way
SILENT = 320
PROGRAM = "from moonfed.coordinator.cli.program import main; main()"


@contextmanager
def raw(coordinators: Coordinators, name: str) -> Iterator[Device]:
    """A device that calls the generated stubs directly, over its own connection."""
    identity = load_identity(coordinators.tmp / name)
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
    with grpc.secure_channel(f"127.0.0.1:{coordinators.ports[0]}", credentials, options) as channel:
        yield Device(name, channel)


def test_a_device_that_reads_none_of_its_downloads_delays_nobody(coordinators: Coordinators) -> None:
    coordinators.serve()
    enrol_all(coordinators, ATTACKERS)
    bundle, unread = bundle_of(LARGE), list[Any]()
    coordinators.start_run("joined", bundle, 1, len(ATTACKERS))  # nobody else participates
    with ExitStack() as stack:
        attackers = [stack.enter_context(raw(coordinators, name)) for name in ATTACKERS]
        sessions = [attacker.connect() for attacker in attackers]
        for attacker, session in zip(attackers, sessions, strict=True):
            sha256 = session.assignment().blobs["model"].sha256
            request = blob_pb2.FetchRequest(device=attacker.name, sha256=sha256)
            unread.append(attacker.fleet.Fetch(request))
            unread[-1].initial_metadata()  # it has begun
            unread += [attacker.fleet.Fetch(request) for _ in range(FETCHES - 1)]
        for session in sessions:
            session.leave()
        coordinators.start_run("run", bundle, 2, len(SAMPLES))
        with devices_at(coordinators):
            coordinators.finished("run")
        assert all(call.is_active() for call in unread), "it must have lasted"
    whole_run(coordinators, "run", 2)


def test_silent_connections_take_no_established_devices_place(coordinators: Coordinators) -> None:
    coordinators.environment = {PATCHES: "tests.support.few_files"}
    coordinators.serve()
    bundle, stop, address = bundle_of(1000), threading.Event(), ("127.0.0.1", coordinators.ports[0])

    def hold(sockets: list[socket.socket]) -> None:
        """Open a connection in place of each that is closed."""
        while not stop.wait(0.05):
            for position, held in enumerate(sockets):
                if is_closed(held):
                    held.close()
                    sockets[position] = silent_connection(address)

    with ExitStack() as stack:
        sockets = [silent_connection(address) for _ in range(SILENT)]
        stack.callback(lambda: deque(map(socket.socket.close, sockets)))
        holding = threading.Thread(target=hold, args=[sockets])
        holding.start()
        stack.callback(holding.join)
        stack.callback(stop.set)
        with devices_at(coordinators):
            retry(lambda: coordinators.start_run("run", bundle, 2, len(SAMPLES)))
            retry(lambda: coordinators.finished("run"))
            retry(lambda: whole_run(coordinators, "run", 2))
    assert re.search(r"closing a connection from 127\.0\.0\.1:\d+: too many connections", coordinators.log)
    assert "Too many open files" not in coordinators.log


def retry(call: Callable[[], object]) -> None:
    """Repeat an operator's calls until they succeed, as devices do."""

    def got_through() -> bool:
        try:
            call()
        except (Unavailable, grpc.RpcError):
            return False
        except AlreadyExists:  # the run, by an attempt whose answer was lost
            return True
        return True

    until(got_through)


def test_a_handshake_that_is_not_completed_is_ended(coordinators: Coordinators) -> None:
    """A silent connection is closed; without the deadline it would last two minutes."""
    coordinators.environment = {PATCHES: "tests.support.short_handshakes"}
    coordinators.serve()
    with socket.create_connection(("127.0.0.1", coordinators.ports[0]), timeout=60.0) as held:
        assert held.recv(1) == b""


def test_one_device_has_few_connections(coordinators: Coordinators) -> None:
    coordinators.serve()
    with ExitStack() as stack:
        opened = []
        for _ in range(20):
            device = stack.enter_context(raw(coordinators, "cam-1"))
            with suppress(grpc.RpcError):  # the run is unknown; the call is authenticated
                device.fleet.Report(fleet_pb2.ReportRequest(device="cam-1", run="none", round=1, attempt=1))
            opened.append(device)
        until(lambda: coordinators.log.count("has too many connections") == LINES)
        with pytest.raises(NotFound):
            opened[-1].report(fleet_pb2.Assignment(run="none", round=1, attempt=1), 0.5)


def test_an_expired_certificate_ends_its_connections(coordinators: Coordinators) -> None:
    seconds = 3
    coordinators.arguments = ("--certificate-days", str(seconds / 86400))
    coordinators.serve()
    enrol_all(coordinators, ["short"])
    with raw(coordinators, "short") as device, raw(coordinators, "cam-1") as other:
        staying, session = other.connect(), device.connect()
        with pytest.raises(Unavailable):
            session.next()  # the coordinator ends the stream
        renewal = fleet_pb2.RenewRequest(device="short", signing_request=signing_request(new_key(), "short"))
        with pytest.raises((Unavailable, Untrusted)):
            ask(device.fleet.Renew, renewal)
        assert staying.call.is_active()
    assert re.search(
        r"closing a connection from .*: the certificate \w+ of device 'short' expired on", coordinators.log
    )


def test_a_revoked_device_is_rejected_on_every_call(coordinators: Coordinators) -> None:
    coordinators.serve()
    with raw(coordinators, "cam-1") as device, raw(coordinators, "cam-2") as other:
        session, staying = device.connect(), other.connect()
        calls = coordinators.operator()
        with calls.channel:
            ask(calls.control.RevokeDevice, control_pb2.RevokeDeviceRequest(device="cam-1"))
        with pytest.raises(Unavailable):
            session.next()
        # The connection that is being closed may still take a call, which then ends with it.
        rejected(device.connect, Untrusted, r"device 'cam-1' was revoked")
        renewal = fleet_pb2.RenewRequest(device="cam-1", signing_request=signing_request(new_key(), "cam-1"))
        rejected(lambda: ask(device.fleet.Renew, renewal), Untrusted, "was revoked")
        assert staying.call.is_active()
    calls = coordinators.operator()
    with calls.channel:
        token = parse_token(calls.token())
    key = load_pem_private_key(load_identity(coordinators.tmp / "cam-1").key, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    request = enrolment_pb2.EnrolRequest(
        secret=token.secret,
        device="cam-1",
        signing_request=signing_request(key, "cam-1"),
        contract_version=CONTRACT_VERSION,
    )
    with (
        grpc.secure_channel(token.address, grpc.ssl_channel_credentials(token.ca)) as channel,
        pytest.raises(Untrusted, match="'cam-1' was revoked by"),
    ):
        ask(enrolment_pb2_grpc.EnrolmentStub(channel).Enrol, request)
    coordinators.kill()
    coordinators.serve()
    with raw(coordinators, "cam-1") as device:
        rejected(device.connect, Untrusted, "was revoked by")


def test_a_renewal_is_logged_with_both_certificates(coordinators: Coordinators) -> None:
    coordinators.serve()
    identity = load_identity(coordinators.tmp / "cam-1")
    with raw(coordinators, "cam-1") as device:
        request = fleet_pb2.RenewRequest(device="cam-1", signing_request=signing_request(new_key(), "cam-1"))
        renewed = ask(device.fleet.Renew, request).certificate
    serials = [read_certificate(certificate).serial for certificate in (identity.certificate, renewed)]
    line = rf"device 'cam-1' at ipv4:127\.0\.0\.1:\d+ renewed its certificate {serials[0]}; the new one is {serials[1]}"
    assert re.search(line, coordinators.log)


def test_a_device_gets_nothing_of_a_run_that_it_only_names(coordinators: Coordinators) -> None:
    coordinators.serve()
    bundle = bundle_of(1000)
    with devices_at(coordinators):
        coordinators.start_run("run", bundle, 1, len(SAMPLES))
        finished = coordinators.finished("run")
    enrol_all(coordinators, ["stranger"])
    with raw(coordinators, "stranger") as device, raw(coordinators, "cam-1") as participant:
        assert device.connect(runs=["run"]).ended() == fleet_pb2.RunEnded(run="run")
        participant.connect(runs=["run"])
        files = {ref.sha256 for ref in bundle.manifest.files.values()}
        for sha256 in (finished.model.sha256, finished.manifest.sha256, *files):
            request = blob_pb2.FetchRequest(sha256=sha256)
            request.device = "stranger"
            with pytest.raises(NotFound, match="device 'stranger' participates in"):
                ask(lambda message, timeout: list(device.fleet.Fetch(message, timeout=timeout)), request)
            request.device = "cam-1"
            assert ask(lambda message, timeout: list(participant.fleet.Fetch(message, timeout=timeout)), request)


@pytest.mark.usefixtures("forked_programs")
def test_a_device_that_claims_ten_million_samples_does_not_decide_the_model(coordinators: Coordinators) -> None:
    """The run has the default settings of `run start`."""
    coordinators.serve()
    names = [f"edge-{number}" for number in range(5)]
    enrol_all(coordinators, names)
    bundle = coordinators.tmp / "bundle"
    coordinator.bundle_directory(bundle)
    command = [
        "run",
        "start",
        str(bundle),
        "--name",
        "run",
        "--rounds",
        "1",
        "--minimum-devices",
        "5",
        "--quorum",
        "all",
    ]
    command += ["--identity", str(coordinators.state / "operator")]
    subprocess.run([sys.executable, "-c", PROGRAM, *command], check=True, timeout=WAIT * 3)
    with ExitStack() as stack:
        devices = [stack.enter_context(raw(coordinators, name)) for name in names]
        sessions = [device.connect() for device in devices]
        for device, session in zip(devices, sessions, strict=True):
            value, samples = (7.0, 10_000_000) if device is devices[0] else (1.0, 10)
            device.submit(session.assignment(), model_bytes(value), samples=samples)
    coordinators.finished("run")
    model = model_values(coordinators.model("run"))
    # a weight of 1.25 times a fifth, and a change of 1.25 times the median, which is 1
    np.testing.assert_allclose(model, 0.25 * 1.25 + 0.75 * 1.0, rtol=1e-6)


def test_a_guessers_log_is_short(coordinators: Coordinators) -> None:
    coordinators.serve()
    calls = coordinators.operator()
    with calls.channel:
        token = parse_token(calls.token())
    long, guess = (
        enrolment_pb2.EnrolRequest(secret="guess", device=name, contract_version=CONTRACT_VERSION)
        for name in ("x" * 100_000, "guesser")
    )
    options = [("grpc.use_local_subchannel_pool", 1)]  # another connection each time
    for first in (long, *[guess] * 5):
        with grpc.secure_channel(token.address, grpc.ssl_channel_credentials(token.ca), options) as channel:
            stub = enrolment_pb2_grpc.EnrolmentStub(channel)
            for request in [first, *[guess] * 50]:
                with pytest.raises(grpc.RpcError):
                    stub.Enrol(request, timeout=WAIT)
    assert coordinators.log.count("enrolment of 'guesser' from") == LINES - 1
    assert "enrolment of 'xxx" in coordinators.log
    assert max(map(len, coordinators.log.splitlines())) < 2000


def test_operators_actions_are_logged_with_their_certificate_and_address(coordinators: Coordinators) -> None:
    coordinators.serve()
    serial = read_certificate(load_identity(coordinators.state / "operator").certificate).serial
    bundle = bundle_of(1000)
    with devices_at(coordinators):
        coordinators.start_run("run", bundle, 1, len(SAMPLES))
        coordinators.finished("run")
    coordinators.start_run("stopped", bundle, 1, 9)
    calls = coordinators.operator()
    with calls.channel:
        calls.token(uses=1_000_000, valid_seconds=3600.0)
        ask(calls.control.StopRun, control_pb2.StopRunRequest(run="stopped"))
        ask(calls.control.PruneRun, control_pb2.PruneRunRequest(run="run", keep_last=1))
        ask(calls.control.DeleteRun, control_pb2.DeleteRunRequest(run="stopped"))
        request = control_pb2.RecordMetricsRequest(run="run", round=1, metrics={"accuracy": 0.5})
        ask(calls.control.RecordMetrics, request)
    for action in (
        r"upload \d+ files, [\d.]+ (?:bytes|KB|MB) in all: [0-9a-f]{12}, ",
        rf"start run 'run' of bundle {bundle.ref.sha256[:12]}",
        r".* for 1,000,000 devices",
        "stop run 'stopped'",
        "prune the models of run 'run', keeping the last 1: ",
        r"delete run 'stopped', freeing [\d.]+ (?:bytes|KB|MB)",
        "record metrics of model 1 of run 'run'",
    ):
        line = rf"INFO operator 'operator' with certificate {serial} at ipv4:127\.0\.0\.1:\d+: {action}"
        assert re.search(line, coordinators.log), action
