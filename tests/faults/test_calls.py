"""A real coordinator handles any message in any call, and invalid bytes, without an internal error."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from moonfed.transport.join_token import parse_token
from moonfed.v1 import control_pb2, enrolment_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.faults.messages import messages
from tests.support import coordinator

SECONDS = 0.2  # for a call that would not end by itself, such as Connect
PROBLEMS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
METHODS: list[MethodDescriptor] = [
    method
    for module in (fleet_pb2, control_pb2, enrolment_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
BUNDLE = coordinator.make_bundle()
EXAMPLES = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@dataclass
class Served:
    """A coordinator with a run whose round is open, a channel for each service, and the names in its state."""

    fleet: Fleet
    channels: dict[str, grpc.Channel]
    words: list[str]

    def call(self, method: MethodDescriptor, requests: Sequence[bytes]) -> grpc.StatusCode:
        """Return the status of a call with these messages; streams and single messages look alike on the wire."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        channel = self.channels[method.containing_service.name]
        replies = channel.stream_stream(path, bytes, None)(iter(requests), timeout=SECONDS)
        with suppress(grpc.RpcError):
            list(replies)
        code = replies.code()
        assert isinstance(code, grpc.StatusCode)
        return code


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with fleet_in(tmp_path_factory.mktemp("fleet")) as fleet, ExitStack() as stack:
        run, device, token = fleet.start("r", bundle=BUNDLE), fleet.device("cam-1"), parse_token(fleet.operator.token())
        assert device.connect().assignment().round == 1
        trusting = grpc.ssl_channel_credentials(token.ca)
        enrolment = stack.enter_context(grpc.secure_channel(token.address, trusting))
        channels = {"Fleet": device.channel, "Control": fleet.operator.channel, "Enrolment": enrolment}
        known = [*(blob.sha256 for blob in BUNDLE.manifest.files.values()), BUNDLE.ref.sha256, token.secret]
        yield Served(fleet, channels, [run.run, "cam-1", "model", "loss", "1.4", "", *known])


@pytest.fixture
def named(served: Served, method: MethodDescriptor) -> list[str]:
    """The devices that the messages of a method may name.

    A device's calls are in its own name, since others are rejected at once. An operator's may revoke, remove or rename
    a device, so they get one of their own.
    """
    if method.containing_service.name != "Control":
        return ["cam-1"]
    if "device" in method.input_type.fields_by_name:
        served.fleet.device(f"of-{method.name.lower()}")
    return [f"of-{method.name.lower()}", "unknown", ""]


def filled(draw: st.DrawFn, method: MethodDescriptor, words: Sequence[str], named: Sequence[str]) -> bytes:
    """Generate any message of a method, about one of the devices `named`."""
    message: Message = draw(messages(GetMessageClass(method.input_type), words))
    if isinstance(message, fleet_pb2.SubmitRequest):
        message.header.device = "cam-1" if message.HasField("header") else ""
    elif "device" in message.DESCRIPTOR.fields_by_name:
        setattr(message, "device", draw(st.sampled_from(named)))
    return message.SerializeToString()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@EXAMPLES
@given(data=st.data())
def test_any_message_in_any_call(
    served: Served,
    caplog: pytest.LogCaptureFixture,
    method: MethodDescriptor,
    named: Sequence[str],
    data: st.DataObject,
) -> None:
    message = st.composite(filled)(method, served.words, named)
    requests = [data.draw(message) for _ in range(data.draw(st.integers(0, 3)))]
    assert served.call(method, requests) not in PROBLEMS or not requests
    assert not [record for record in caplog.records if record.levelname == "ERROR"], caplog.text


@EXAMPLES
@given(garbage=st.binary(min_size=1, max_size=200), service=st.sampled_from(["Fleet", "Enrolment"]))
def test_bytes_that_are_neither_handshake_nor_message(served: Served, garbage: bytes, service: str) -> None:
    ports = served.fleet.ports
    port = ports.fleet if service == "Fleet" else ports.enrolment
    with socket.create_connection(("127.0.0.1", port or 0)) as stranger:
        stranger.sendall(garbage)
    identity = load_identity(served.fleet.tmp / "cam-1")
    context = ssl.create_default_context(cadata=identity.ca.decode())
    context.load_cert_chain(identity.directory / "certificate.pem", identity.directory / "key.pem")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port or 0)) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(garbage)
    for method in METHODS:
        if method.containing_service.name == service:
            assert served.call(method, [garbage]) != grpc.StatusCode.UNAVAILABLE


def test_a_round_completes_after_invalid_calls(served: Served) -> None:
    started = served.fleet.start("afterwards", bundle=BUNDLE)
    identity = load_identity(served.fleet.tmp / "cam-1")
    with transport.open_channel(identity.address, identity) as channel:
        device = coordinator.Device("cam-1", channel)
        session = device.connect()
        while (work := session.assignment()).run != started.run:
            pass
        device.submit(work, coordinator.model_bytes(2.0))
        ended = list(served.fleet.operator.watch("afterwards"))[-1].run
        session.leave()
    assert ended.status == "finished"
    assert coordinator.model_values(served.fleet.operator.model(ended.model)).tolist() == [2.0] * coordinator.SIZE
