"""Authorisation of every call, over real TLS."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.devices import registry_poll
from moonfed.coordinator.pki.authority import Authority
from moonfed.coordinator.rpc import connections
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.connections import ConnectionGuard
from moonfed.errors import AlreadyExists, Denied, MoonfedError, Unavailable, Untrusted, VersionMismatch
from moonfed.observability.flood_log import LINES
from moonfed.transport import client as transport
from moonfed.transport import diagnosis as connection_diagnosis
from moonfed.transport.diagnosis import explain_enrolment_unavailable, explain_unavailable
from moonfed.transport.identity import key_bytes, load_identity, new_key, save_identity, signing_request
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2
from moonfed.v1.control_pb2_grpc import ControlStub
from moonfed.v1.fleet_pb2_grpc import FleetStub
from moonfed.version import CONTRACT_VERSION
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support import coordinator
from tests.support.coordinator import ask, model_bytes


def test_a_token_enrols_its_number_of_devices(fleet: Fleet) -> None:
    token = fleet.operator.token(uses=1)
    coordinator.enrol(fleet.tmp / "a", token, "cam-1")
    with pytest.raises(Untrusted, match="used up"):
        coordinator.enrol(fleet.tmp / "b", token, "cam-2")
    with pytest.raises(AlreadyExists, match="'cam-1'"):
        coordinator.enrol(fleet.tmp / "c", fleet.operator.token(), "cam-1")


def test_an_expired_token_is_rejected(fleet: Fleet) -> None:
    token = fleet.operator.token(valid_seconds=1e-6)
    with pytest.raises(Untrusted, match="expired"):
        coordinator.enrol(fleet.tmp / "a", token, "cam-1")
    assert not fleet.operator.devices()


def test_the_enrolment_port_offers_enrolment_alone(fleet: Fleet) -> None:
    fleet.device("cam-1")
    identity = load_identity(fleet.tmp / "cam-1")
    address = f"127.0.0.1:{fleet.ports.enrolment}"
    with (
        transport.open_channel(address, identity) as channel,
        pytest.raises(VersionMismatch, match="does not support the call"),
    ):
        ask(FleetStub(channel).Report, fleet_pb2.ReportRequest(device="cam-1"))


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_that_only_a_later_release_has_is_told_both_versions(streamed: bool, fleet: Fleet) -> None:
    channel, method = fleet.operator.channel, "/moonfed.v1.Control/Later"
    codecs = (control_pb2.GetRunRequest.SerializeToString, control_pb2.Run.FromString)
    call = channel.unary_stream(method, *codecs) if streamed else channel.unary_unary(method, *codecs)
    with pytest.raises(VersionMismatch, match="Control/Later") as error:
        ask(lambda asked, timeout: list(call(asked, timeout=timeout)) if streamed else call(asked, timeout=timeout),
            control_pb2.GetRunRequest(run="run"))  # fmt: skip
    assert str(error.value).count(CONTRACT_VERSION) == 2
    assert fleet.operator.devices() == []


def calls_in_anothers_name(device: coordinator.Device) -> dict[str, Any]:
    work, content = fleet_pb2.Assignment(run="run", round=1, attempt=1), model_bytes(1.0)
    stub = device.fleet
    renewal = fleet_pb2.RenewRequest(device="cam-2", signing_request=signing_request(new_key(), "cam-2"))
    fetch = blob_pb2.FetchRequest(device="cam-2", sha256=ref_of_bytes(content).sha256)
    return {
        "Connect": lambda: device.connect("cam-2"),
        "Fetch": lambda: ask(lambda request, timeout: list(stub.Fetch(request, timeout=timeout)), fetch),
        "Report": lambda: ask(stub.Report, fleet_pb2.ReportRequest(device="cam-2", run="run")),
        "Submit": lambda: device.submit(work, content, device="cam-2"),
        "Decline": lambda: ask(stub.Decline, fleet_pb2.DeclineRequest(device="cam-2", run="run")),
        "ReportEligibility": lambda: ask(
            stub.ReportEligibility, fleet_pb2.ReportEligibilityRequest(device="cam-2", run="run")
        ),
        "ReportEvaluation": lambda: ask(
            stub.ReportEvaluation, fleet_pb2.ReportEvaluationRequest(device="cam-2", run="run")
        ),
        "ReportRelease": lambda: ask(stub.ReportRelease, fleet_pb2.ReportReleaseRequest(device="cam-2", name="digits")),
        "Leave": lambda: ask(stub.Leave, fleet_pb2.LeaveRequest(device="cam-2")),
        "Renew": lambda: ask(stub.Renew, renewal),
    }


def test_no_call_can_be_made_in_another_devices_name(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    device = fleet.device("cam-1")
    fleet.device("cam-2")
    calls = calls_in_anothers_name(device)
    assert set(calls) == {method.name for method in fleet_pb2.DESCRIPTOR.services_by_name["Fleet"].methods}
    for name, call in calls.items():
        caplog.clear()
        with pytest.raises(Denied, match=r"'cam-1'.*'cam-2'"):
            call()
        assert any(record.name == "moonfed.coordinator.audit" for record in caplog.records), name


def test_a_device_that_claims_other_names_all_the_time_does_not_fill_the_log(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    device = fleet.device("cam-1")
    for number in range(LINES + 5):
        with pytest.raises(Denied):
            ask(device.fleet.Report, fleet_pb2.ReportRequest(device=f"cam-{number + 2}", run="run"))
    assert caplog.text.count("claimed to be device") == LINES


def test_operators_and_devices_cannot_use_each_others_calls(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    with pytest.raises(Denied, match="'operator' is an operator; this call is for devices"):
        ask(FleetStub(fleet.operator.channel).Report, fleet_pb2.ReportRequest(device="operator"))
    control = ControlStub(device.channel)
    for method, request in (
        (control.StartRun, control_pb2.StartRunRequest()),
        (control.ListRuns, control_pb2.ListRunsRequest()),
        (control.GetRun, control_pb2.GetRunRequest()),
        (control.StopRun, control_pb2.StopRunRequest()),
        (control.RecordMetrics, control_pb2.RecordMetricsRequest()),
        (lambda r, timeout: list(control.ListDevices(r, timeout=timeout)), control_pb2.ListDevicesRequest()),
        (control.CreateToken, control_pb2.CreateTokenRequest()),
        (lambda r, timeout: list(control.ListRounds(r, timeout=timeout)), control_pb2.ListRoundsRequest(run="run")),
        (lambda r, timeout: list(control.WatchRun(r, timeout=timeout)), control_pb2.WatchRunRequest(run="run")),
        (lambda r, timeout: list(control.Fetch(r, timeout=timeout)), blob_pb2.FetchRequest()),
        (lambda r, timeout: list(control.Upload(iter([r]), timeout=timeout)), control_pb2.UploadRequest()),
    ):
        with pytest.raises(Denied, match="'cam-1' is a device"):
            ask(method, request)


def rejected(channel: grpc.Channel, reason: MoonfedError) -> str:
    """Return the message for a call that fails for that reason."""
    with channel, pytest.raises(type(reason)) as caught:
        transport.call(ControlStub(channel).ListRuns, control_pb2.ListRunsRequest(), explain=lambda: reason)
    return str(caught.value)


def test_another_authoritys_certificate_and_none_are_rejected(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_diagnosis, "RECHECK_SECONDS", 0.01)
    address = f"127.0.0.1:{fleet.ports.fleet}"
    ours = load_identity(fleet.state / "operator")
    other, key = Authority(tmp_path / "other"), new_key()
    signed = other.sign(signing_request(key, "operator"), "operator", "operator", timedelta(days=1), "admin")
    save_identity(tmp_path / "theirs", address=address, ca=ours.ca, certificate=signed.certificate, key=key_bytes(key))
    theirs = load_identity(tmp_path / "theirs")
    reason = explain_unavailable(address, theirs)
    assert isinstance(reason, Untrusted)
    sentence = rejected(transport.open_channel(address, theirs), reason)
    assert sentence.endswith("rejected this certificate: it is signed by another authority")

    reason = explain_enrolment_unavailable(address, ours.ca)
    assert isinstance(reason, Untrusted)
    sentence = rejected(grpc.secure_channel(address, grpc.ssl_channel_credentials(ours.ca)), reason)
    assert sentence == f"the server at {address} asks for a certificate; enrolment has its own port"

    reason = explain_unavailable(address, None)
    assert isinstance(reason, Unavailable)
    sentence = rejected(grpc.insecure_channel(address), reason)
    assert sentence == f"the server at {address} did not answer; is it a coordinator that runs with --insecure?"

    assert not isinstance(explain_unavailable(address, ours), Untrusted), "the right one is not blamed"


def test_a_call_without_a_certificate_is_rejected_whatever_tls_permits() -> None:
    class Context:
        def auth_context(self) -> dict[str, list[bytes]]:
            return {}

        def peer(self) -> str:
            return "ipv4:127.0.0.1:1"

    guard = ConnectionGuard(100, lambda _: None)
    authenticator = Authenticator(insecure=False, connections=guard, rejection=lambda _: None)
    context = cast("grpc.ServicerContext", Context())
    for call in (lambda: authenticator.device(context, "cam-1"), lambda: authenticator.operator(context, "ListRuns")):
        with pytest.raises(Untrusted, match="this call needs a certificate of this coordinator's authority"):
            call()


def test_a_device_that_was_revoked_before_the_start_is_rejected_from_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fleet_in(tmp_path) as fleet:
        fleet.device("cam-1")
        ask(ControlStub(fleet.operator.channel).RevokeDevice, control_pb2.RevokeDeviceRequest(device="cam-1"))
    monkeypatch.setattr(registry_poll, "POLL_SECONDS", 3600.0)
    with fleet_in(tmp_path) as fleet:
        identity = load_identity(tmp_path / "cam-1")
        with (
            transport.open_channel(f"127.0.0.1:{fleet.ports.fleet}", identity) as channel,
            pytest.raises(Untrusted, match="'cam-1' was revoked"),
        ):
            ask(FleetStub(channel).Report, fleet_pb2.ReportRequest(device="cam-1", run="run"))


def test_silent_connections_to_the_enrolment_port_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "MAX_PENDING", 4)
    monkeypatch.setattr(connections, "SEARCH_SECONDS", 0.1)  # so that the guard closes them, not gRPC,
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 60)  # which waits for their handshake
    with fleet_in(tmp_path) as fleet, ExitStack() as stack:
        address = ("127.0.0.1", fleet.ports.enrolment or 0)
        silent = [stack.enter_context(socket.create_connection(address, timeout=60.0)) for _ in range(9)]
        assert silent[0].recv(1) == b""
        assert "too many connections have made no call" in caplog.text
        assert coordinator.enrol(fleet.tmp / "a", fleet.operator.token(), "cam-1")


def test_health_is_reported_on_both_ports(fleet: Fleet) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    credentials = grpc.ssl_channel_credentials(load_identity(fleet.state / "operator").ca)
    with grpc.secure_channel(f"127.0.0.1:{fleet.ports.enrolment}", credentials) as enrolment:
        for channel in (fleet.operator.channel, enrolment):
            reply = ask(health_pb2_grpc.HealthStub(channel).Check, health_pb2.HealthCheckRequest())
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
