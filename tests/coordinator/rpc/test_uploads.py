"""Uploads: resumed, checked and idempotent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.errors import Corrupt, InvalidInput, NotFound
from moonfed.transport.client import to_message
from moonfed.v1 import blob_pb2, control_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask, upload


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
    upload(fleet.operator.control, {ref: path})
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
