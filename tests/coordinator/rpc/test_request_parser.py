"""Parsing of requests: bounded, and only our own errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from moonfed.coordinator.devices.sessions import MAX_RUNS, MAX_WORDS
from moonfed.coordinator.rpc.request_parser import MAX_FIELDS, request_parser
from moonfed.coordinator.updates.validation import MAX_METRICS
from moonfed.errors import InvalidInput
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from moonfed.transport.join_token import parse_token
from moonfed.v1 import blob_pb2, control_pb2, enrolment_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import WAIT

EMPTY = b"\x0a\x00"  # field 1, of no bytes
MODULES = (
    (fleet_pb2, "Fleet"),
    (control_pb2, "Control"),
    (enrolment_pb2, "Enrolment"),
    (health_pb2, "Health"),
)
METHODS = [method for module, name in MODULES for method in module.DESCRIPTOR.services_by_name[name].methods]


def nested(message: Message, field: str, count: int) -> bytes:
    """Return a message with a submessage that contains many empty ones."""
    getattr(message, field).ParseFromString(EMPTY * count)
    return message.SerializeToString()


@pytest.mark.parametrize(
    "content",
    [
        EMPTY * (MAX_FIELDS + 1),
        nested(control_pb2.UploadRequest(), "header", MAX_FIELDS),
        b"\x0a\x04" + EMPTY * 2 + b"\x7a\x00" * MAX_FIELDS,  # unknown fields
        b"\x7b" * (MAX_FIELDS + 1),  # groups in groups
        b"\x78\x01" * (MAX_FIELDS + 1),
        b"\x79" + bytes(8) + b"\x7d" + bytes(4) + EMPTY * MAX_FIELDS,
    ],
    ids=["fields", "submessages", "unknown fields", "groups", "numbers", "fixed sizes"],
)
def test_a_request_with_too_many_fields_is_rejected(content: bytes) -> None:
    with pytest.raises(InvalidInput, match=f"the request has more than {MAX_FIELDS} fields"):
        request_parser(control_pb2.UploadRequest.FromString)(content)


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a",
        b"\x0a\x05x",
        b"\xff" * 20,
        b"\x0f",
        b"\x7b",
        b"\x12\x03\x0a\x02x",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_other_bytes_are_rejected_by_name(content: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"the request is not a valid moonfed\.v1\.UploadRequest"):
        request_parser(control_pb2.UploadRequest.FromString)(content)


def test_a_number_without_an_end_is_not_read_further() -> None:
    """It would grow with each byte, and the time for the next one with it."""
    with pytest.raises(InvalidInput) as caught:
        request_parser(control_pb2.UploadRequest.FromString)(b"\xff" * 20)
    assert str(caught.value.__cause__) == "a number is too long"


def largest() -> Iterator[Message]:
    words = {f"name-{number}": "x" * 200 for number in range(MAX_WORDS)}
    runs = [f"run-{number}" for number in range(MAX_RUNS)]
    yield fleet_pb2.ConnectRequest(device="cam-1", platform=words, labels=words, runs=runs, encodings=["int8"] * 20)
    blobs = {f"role-{number}": blob_pb2.Blob(sha256="0" * 64, size=1 << 40) for number in range(100)}
    metrics = {f"metric-{number}": 0.5 for number in range(MAX_METRICS)}
    yield fleet_pb2.SubmitRequest(header=fleet_pb2.SubmitHeader(device="cam-1", blobs=blobs, metrics=metrics))
    part = blob_pb2.Part(sha256="0" * 64, offset=1 << 50, data=EMPTY * (transport.PART_SIZE // 2))
    yield fleet_pb2.SubmitRequest(part=part)
    yield control_pb2.UploadRequest(header=control_pb2.UploadHeader(blobs=blobs.values()))
    yield control_pb2.RecordMetricsRequest(
        run="r", metrics={f"{name}-{index}": 1.0 for name in metrics for index in "ab"}
    )


@pytest.mark.parametrize("message", list(largest()), ids=lambda message: type(message).__name__)
def test_the_largest_honest_requests_are_parsed(message: Any) -> None:
    assert request_parser(type(message).FromString)(message.SerializeToString()) == message


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
def test_every_method_rejects_too_many_fields_before_it_authenticates(method: MethodDescriptor, fleet: Fleet) -> None:
    service = method.containing_service
    with channel_to(service.name, fleet) as channel:
        factory = getattr(channel, f"{kind(method.client_streaming)}_{kind(method.server_streaming)}")
        call = factory(f"/{service.full_name}/{method.name}")
        request = EMPTY * (MAX_FIELDS + 1)
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter([request]) if method.client_streaming else request, timeout=WAIT))
    error: Any = caught.value
    if method.full_name == "moonfed.v1.Control.Upload":  # authenticates before it reads anything
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    else:
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == f"the request has more than {MAX_FIELDS} fields"


def test_a_later_request_of_a_stream_is_rejected_too(fleet: Fleet) -> None:
    blob = blob_pb2.Blob(sha256="0" * 64, size=5)
    header = control_pb2.UploadRequest(header=control_pb2.UploadHeader(blobs=[blob])).SerializeToString()
    call: Any = getattr(fleet.operator.channel, "stream_stream")("/moonfed.v1.Control/Upload")  # noqa: B009 - untyped
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([header, EMPTY * (MAX_FIELDS + 1)]), timeout=WAIT))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == f"the request has more than {MAX_FIELDS} fields"


def kind(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def channel_to(service: str, fleet: Fleet) -> grpc.Channel:
    """Open an anonymous connection for Enrolment, otherwise one as a device, which may not call Control."""
    if service == "Enrolment":
        token = parse_token(fleet.operator.token())
        return grpc.secure_channel(token.address, grpc.ssl_channel_credentials(token.ca))
    fleet.device("cam-1")
    identity = load_identity(fleet.tmp / "cam-1")
    return transport.open_channel(identity.address, identity)
