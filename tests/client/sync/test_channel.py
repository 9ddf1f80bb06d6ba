"""Uploads to a scripted coordinator over real gRPC: resumed, repeated, or given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.client.sync.connection import TRANSFERS
from moonfed.errors import InvalidInput, MoonfedError, Unavailable, Untrusted
from moonfed.transport.client import PART_SIZE, from_message, to_message
from moonfed.transport.grpc_status import to_status
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc
from tests.support.coordinator import StubConnection

CONTENTS = [bytes([number]) * (PART_SIZE + 10) for number in range(2)]
Requests = Iterator[control_pb2.UploadRequest]
Script = Callable[["Uploads", Requests, grpc.ServicerContext], Iterator[control_pb2.UploadReply]]


class Uploads(control_pb2_grpc.ControlServicer):
    """The received bytes; each attempt follows the next script, and the last ones are complete."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts, self.attempts = list(scripts), 0
        self.received: dict[str, bytearray] = {}
        self.sizes: list[int] = []

    def Upload(self, requests: Requests, context: grpc.ServicerContext) -> Iterator[control_pb2.UploadReply]:
        self.attempts += 1
        yield from (self.scripts.pop(0) if self.scripts else complete)(self, requests, context)

    def resume(self, requests: Requests) -> tuple[list[BlobRef], control_pb2.UploadReply]:
        refs = [from_message(blob) for blob in next(requests).header.blobs]
        offsets = {ref.sha256: len(self.received.get(ref.sha256, b"")) for ref in refs}
        return refs, control_pb2.UploadReply(resume=blob_pb2.Resume(offsets=offsets))

    def append(self, part: blob_pb2.Part) -> None:
        held = self.received.setdefault(part.sha256, bytearray())
        assert part.offset == len(held), "no byte is sent twice or left out"
        held.extend(part.data)
        self.sizes.append(len(part.data))


def abort(context: grpc.ServicerContext, error: MoonfedError) -> None:
    code, details, metadata = to_status(error)
    context.set_trailing_metadata(metadata)
    context.abort(code, details)


def complete(uploads: Uploads, requests: Requests, _: grpc.ServicerContext) -> Iterator[control_pb2.UploadReply]:
    refs, resume = uploads.resume(requests)
    yield resume
    for request in requests:
        if request.HasField("part"):
            uploads.append(request.part)
        else:
            assert request.HasField("commit")
    stored = [to_message(ref) for ref in refs if ref_of_bytes(bytes(uploads.received[ref.sha256])) == ref]
    yield control_pb2.UploadReply(stored=control_pb2.Stored(blobs=stored))


def broken(uploads: Uploads, requests: Requests, context: grpc.ServicerContext) -> Iterator[control_pb2.UploadReply]:
    """Break off after one part, as a lost connection does."""
    _, resume = uploads.resume(requests)
    yield resume
    request = next(requests)
    if request.HasField("part"):
        uploads.append(request.part)
    context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")


def rejected(_: Uploads, requests: Requests, context: grpc.ServicerContext) -> Iterator[control_pb2.UploadReply]:
    next(requests)
    abort(context, InvalidInput("blobs are too many"))
    yield from ()


def unconfirmed(uploads: Uploads, requests: Requests, _: grpc.ServicerContext) -> Iterator[control_pb2.UploadReply]:
    """End well for gRPC, but without the word that the files are stored."""
    yield from (reply for reply in complete(uploads, requests, _) if reply.HasField("resume"))


def scripted(*scripts: Script) -> Uploads:
    return Uploads(*scripts)  # type: ignore[abstract]  # it answers nothing else


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def send(tmp_path: Path, uploads: Uploads, explain: Callable[[], MoonfedError] = lambda: Unavailable("away")) -> None:
    files = {}
    for content in CONTENTS:
        ref = ref_of_bytes(content)
        files[ref] = tmp_path / ref.sha256
        files[ref].write_bytes(content)
    with futures.ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        control_pb2_grpc.add_ControlServicer_to_server(uploads, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                StubConnection(control_pb2_grpc.ControlStub(channel), explain).upload(files)
        finally:
            server.stop(None).wait()


def received(uploads: Uploads) -> list[bytes]:
    return [bytes(uploads.received[ref_of_bytes(content).sha256]) for content in CONTENTS]


def test_all_files_arrive_whole_in_parts_of_limited_size(tmp_path: Path, pauses: list[float]) -> None:
    uploads = scripted()
    send(tmp_path, uploads)
    assert received(uploads) == CONTENTS
    assert uploads.sizes == [PART_SIZE, 10] * 2
    assert (uploads.attempts, pauses) == (1, [])


def test_a_broken_upload_continues_where_it_broke_off(tmp_path: Path, pauses: list[float]) -> None:
    uploads = scripted(broken, broken)
    send(tmp_path, uploads)
    assert received(uploads) == CONTENTS
    assert (uploads.attempts, len(pauses)) == (3, 2)
    assert sum(uploads.sizes) == sum(map(len, CONTENTS))


def test_files_that_the_coordinator_holds_are_not_sent(tmp_path: Path, pauses: list[float]) -> None:
    uploads = scripted()
    uploads.received = {ref_of_bytes(content).sha256: bytearray(content) for content in CONTENTS}
    send(tmp_path, uploads)
    assert (uploads.sizes, uploads.attempts, pauses) == ([], 1, [])


def test_an_upload_without_confirmation_is_repeated(tmp_path: Path, pauses: list[float]) -> None:
    uploads = scripted(unconfirmed)
    send(tmp_path, uploads)
    assert (uploads.attempts, len(pauses)) == (2, 1)
    with pytest.raises(Unavailable, match="ended the upload before all files were stored"):
        send(tmp_path, scripted(*[unconfirmed] * TRANSFERS))


def test_a_rejection_is_final_and_leaves_no_thread_behind(tmp_path: Path, pauses: list[float]) -> None:
    before, uploads = set(threading.enumerate()), scripted(rejected)
    with pytest.raises(InvalidInput, match="blobs are too many"):
        send(tmp_path, uploads)
    assert (uploads.attempts, pauses) == (1, [])
    deadline = time.monotonic() + 30
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert not set(threading.enumerate()) - before


def test_attempts_are_limited_and_the_reason_is_explained(tmp_path: Path, pauses: list[float]) -> None:
    uploads = scripted(*[broken] * TRANSFERS)
    with pytest.raises(Unavailable, match="nobody listens"):
        send(tmp_path, uploads, lambda: Unavailable("nobody listens"))
    assert (uploads.attempts, len(pauses)) == (TRANSFERS, TRANSFERS - 1)


def test_an_explanation_that_is_not_unavailable_ends_the_upload(tmp_path: Path, pauses: list[float]) -> None:
    uploads = scripted(broken, broken)
    with pytest.raises(Untrusted, match="another authority"):
        send(tmp_path, uploads, lambda: Untrusted("another authority"))
    assert (uploads.attempts, pauses) == (1, [])
