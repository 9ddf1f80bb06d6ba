"""Every way to call a coordinator checks its replies, and raises one of our errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import grpc
import pytest

from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.errors import Corrupt
from moonfed.transport import client as transport
from moonfed.transport.grpc_status import from_rpc_error
from moonfed.transport.identity import load_identity
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc
from tests.support.coordinator import upload
from tests.support.malicious_coordinator import SEQUENCES, Malicious, malicious_coordinator
from tests.support.refusals import refused
from tests.test_mirroring import PARTS

ROOT = Path(__file__).parents[3]
BAD = control_pb2.Round(run="r", round=2, missing=["../x"])


@pytest.fixture
def malicious() -> Iterator[Malicious]:
    with malicious_coordinator() as found:
        yield found


@pytest.fixture
def control(malicious: Malicious, tmp_path: Path) -> Iterator[control_pb2_grpc.ControlStub]:
    identity = load_identity(malicious.write_identity(tmp_path / "operator"))
    with transport.open_channel(malicious.address, identity) as channel:
        yield control_pb2_grpc.ControlStub(channel)


def test_one_reply_a_stream_and_an_upload_are_checked(
    malicious: Malicious, control: control_pb2_grpc.ControlStub, tmp_path: Path
) -> None:
    malicious.replies |= {
        "GetRun": control_pb2.Run(run="../x"),
        "ListRounds": chain([control_pb2.Round(run="r", round=1, missing=["cam-1"])], repeat(BAD)),
        "Upload": control_pb2.UploadReply(resume=blob_pb2.Resume(offsets={"../x": 0})),
        "Fetch": b"\xff",
    }
    with refused(Corrupt, "Run.run", "../x"):
        transport.call(control.GetRun, control_pb2.GetRunRequest(run="x"))
    stream: Any = control.ListRounds(control_pb2.ListRoundsRequest(run="x"))
    assert next(stream).missing == ["cam-1"]
    with refused(Corrupt, "Round.missing", "../x"):
        next(stream)
    assert stream.code() == grpc.StatusCode.CANCELLED
    (tmp_path / "file").write_bytes(b"content")
    ref = BlobRef("ab" * 32, 7)
    with refused(Corrupt, "Resume.OffsetsEntry.key"):
        upload(control, {ref: tmp_path / "file"})
    with pytest.raises(Corrupt, match="cannot be read"):
        transport.fetch_blob(control.Fetch, ref, BlobDirectory(tmp_path / "blobs"))


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=list(SEQUENCES))
@pytest.mark.parametrize("streams", [False, True])
def test_an_errors_details_become_one_printable_line(
    streams: bool, sequence: str, malicious: Malicious, control: control_pb2_grpc.ControlStub
) -> None:
    malicious.replies |= {"GetRun": f"no{sequence}", "ListRounds": f"no{sequence}"}

    def ask() -> object:
        if streams:
            return list(control.ListRounds(control_pb2.ListRoundsRequest(run="x")))
        return control.GetRun(control_pb2.GetRunRequest(run="x"))

    with pytest.raises(grpc.RpcError) as caught:
        ask()
    message = str(from_rpc_error(caught.value))
    assert message.startswith("no")
    assert message.isprintable()


@pytest.mark.parametrize("excess", [1, 1 << 20])
def test_a_small_blob_that_does_not_end_is_given_up(
    excess: int, malicious: Malicious, control: control_pb2_grpc.ControlStub
) -> None:
    sent: list[int] = []

    def endless() -> Iterator[blob_pb2.Chunk]:
        for number in range(10_000):
            sent.append(number)
            yield blob_pb2.Chunk(data=bytes(excess))

    ref = transport.from_message(malicious.put(b""))
    malicious.replies["Fetch"] = endless()
    with pytest.raises(Corrupt, match="another sha256"):
        transport.fetch_bytes(control.Fetch, ref)
    assert len(sent) < 10_000


def opens_channel(line: str) -> bool:
    return re.search(r"\b(in)?secure_channel\(", line) is not None


def test_no_program_opens_a_channel_of_its_own() -> None:
    files = [path for part in PARTS for path in (ROOT / part).rglob("*.py")]
    found = {path.name for path in files if any(map(opens_channel, path.read_text().splitlines()))}
    assert found == {"client.py", "async_channel.py"}
