"""One upload against a coordinator that is a generator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.edge_client.agent.throttle import Throttle
from moonfed.edge_client.agent.upload import UpdateUpload, submit
from moonfed.errors import Corrupt, Unavailable
from moonfed.transport.client import to_message
from moonfed.v1 import blob_pb2, fleet_pb2

CONTENTS = {"model": b"m" * 5000, "variate_change": b"v" * 300}
REFS = {role: ref_of_bytes(content) for role, content in CONTENTS.items()}
HEADER = fleet_pb2.SubmitHeader(
    device="cam-1", run="r", round=2, attempt=1, blobs={role: to_message(ref) for role, ref in REFS.items()}
)
Requests = Iterator[fleet_pb2.SubmitRequest]
Replies = Iterator[fleet_pb2.SubmitReply]


@pytest.fixture
def files(tmp_path: Path) -> dict[BlobRef, Path]:
    for role, content in CONTENTS.items():
        (tmp_path / role).write_bytes(content)
    return {ref: tmp_path / role for role, ref in REFS.items()}


def resume(**offsets: int) -> fleet_pb2.SubmitReply:
    by_digest = {REFS[role].sha256: offset for role, offset in offsets.items()}
    return fleet_pb2.SubmitReply(resume=blob_pb2.Resume(offsets=by_digest))


def receipt(sha256: dict[str, str] | None = None) -> fleet_pb2.SubmitReply:
    digests = {role: ref.sha256 for role, ref in REFS.items()} if sha256 is None else sha256
    return fleet_pb2.SubmitReply(receipt=fleet_pb2.Receipt(run="r", round=2, attempt=1, sha256=digests))


def coordinator(received: list[fleet_pb2.SubmitRequest], **offsets: int) -> Callable[[Requests], Replies]:
    """Return a coordinator that holds the first bytes of some blobs, and records what it is sent."""

    def call(requests: Requests) -> Replies:
        received.append(next(requests))
        yield resume(**offsets)
        received.extend(requests)
        yield receipt()

    return call


@pytest.mark.parametrize(
    "offsets", [{}, {"model": 1200}, {"model": 5000}, {"model": 5000, "variate_change": 300}], ids=str
)
def test_what_the_coordinator_lacks_is_sent_between_header_and_commit(
    offsets: dict[str, int], files: dict[BlobRef, Path]
) -> None:
    received: list[fleet_pb2.SubmitRequest] = []
    submit(coordinator(received, **offsets), HEADER, UpdateUpload(files))
    assert received[0].header == HEADER
    assert [request.WhichOneof("request") for request in received].count("commit") == 1
    assert received[-1].HasField("commit")
    for role, content in CONTENTS.items():
        parts = [each.part for each in received if each.HasField("part") and each.part.sha256 == REFS[role].sha256]
        start = offsets.get(role, 0)
        assert b"".join(part.data for part in parts) == content[start:]
        assert [part.offset for part in parts] == [
            start + sum(len(each.data) for each in parts[:number]) for number in range(len(parts))
        ]


def test_a_receipt_for_anything_else_is_an_error(files: dict[BlobRef, Path]) -> None:
    def call(requests: Requests) -> Replies:
        next(requests)
        yield receipt({"model": "0" * 64})

    with pytest.raises(Corrupt, match=r"the coordinator's receipt is for .'model': '000"):
        submit(call, HEADER, UpdateUpload(files))


def test_a_stream_that_ends_without_a_receipt_is_retried(files: dict[BlobRef, Path]) -> None:
    def call(requests: Requests) -> Replies:
        next(requests)
        yield resume()

    with pytest.raises(Unavailable, match="ended the upload without a receipt"):
        submit(call, HEADER, UpdateUpload(files))


def test_a_receipt_for_an_update_that_is_already_durable_ends_the_upload(files: dict[BlobRef, Path]) -> None:
    sent: list[fleet_pb2.SubmitRequest] = []
    kept: list[Requests] = []

    def call(requests: Requests) -> Replies:
        kept.append(requests)
        sent.append(next(requests))
        yield receipt()

    submit(call, HEADER, UpdateUpload(files))
    assert list(kept[0]) == []  # gRPC's thread, which waits for the next request, is released
    assert len(sent) == 1


@pytest.mark.parametrize(("wanted", "sent"), [(0, [9000]), (4096, [4096, 4096, 808]), (1, [4096, 4096, 808])])
def test_parts_are_as_small_as_the_coordinator_wants_them_but_no_smaller_than_sensible(
    wanted: int, sent: list[int], tmp_path: Path
) -> None:
    (tmp_path / "model").write_bytes(bytes(9000))
    sending = UpdateUpload({ref_of_bytes(bytes(9000)): tmp_path / "model"})
    assert [len(part.data) for part in sending.parts(blob_pb2.Resume(part_size=wanted))] == sent


class SlowThrottle(Throttle):
    """A throttle that asks to wait for ever."""

    def __init__(self) -> None:
        super().__init__(1000)

    def consume(self, size: int) -> float:
        return 3600.0


def test_a_throttled_upload_that_ends_leaves_no_waiting_thread(files: dict[BlobRef, Path]) -> None:
    sending = UpdateUpload(files, SlowThrottle())
    received: list[blob_pb2.Part] = []
    first = threading.Event()

    def send() -> None:
        for part in sending.parts(blob_pb2.Resume()):
            received.append(part)
            first.set()

    sender = threading.Thread(target=send)
    sender.start()
    assert first.wait(60)
    sending.stop()
    sender.join(60)
    assert not sender.is_alive()
    assert len(received) == 1
    assert not sending.done.is_set()  # so no commit follows
