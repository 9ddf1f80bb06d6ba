"""The operator's connection: uploads, and a watch that survives restarts."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

import pytest

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.records import RunEvent
from moonfed.coordinator.rpc import convert_control
from moonfed.errors import Corrupt, InvalidInput, MoonfedError, NotFound, ResourceExhausted, Unavailable
from moonfed.transport.client import to_message
from moonfed.v1 import blob_pb2, control_pb2
from tests.coordinator.conftest import Fleet, console, upload
from tests.support import coordinator
from tests.support.coordinator import ask, model_bytes
from tests.support.coordinator_programs import ENVIRONMENT, PROGRAM, Programs

pytestmark = pytest.mark.slow

Until = Callable[[Callable[[], bool]], None]


def test_watching_continues_across_a_restart(programs: Programs, until: Until) -> None:
    programs.serve()
    device = programs.device("cam-1")
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    programs.command("run", "start", str(bundle), "--name", "r", "--rounds", "1")
    words = [*PROGRAM, "run", "watch", "r", "--identity", str(programs.state / "operator")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as watching:
        try:
            assert watching.stdout
            assert "run r (fedavg): running, 0 of 1 round" in watching.stdout.readline()
            assert "waiting for 1 more device" in watching.stdout.readline()
            programs.signal(signal.SIGKILL)
            programs.serve()
            device = programs.device("cam-1")
            device.submit(device.connect().assignment(), model_bytes(1.0))
            assert "run r (fedavg): finished, 1 of 1 round" in watching.stdout.read()
            assert watching.wait(timeout=60) == 0
        finally:
            watching.kill()


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


def test_following_resumes_after_falling_behind_and_ends_on_resource_exhaustion(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[MoonfedError] = [Unavailable("this watcher fell behind"), ResourceExhausted("too much")]

    async def fail(self: OperatorApi, run: str) -> AsyncGenerator[RunEvent, None]:
        yield RunEvent(kind="waiting", reason="a reason")
        raise problems.pop(0)

    monkeypatch.setattr(OperatorApi, "watch", fail)
    messages: list[MoonfedError] = []
    with pytest.raises(ResourceExhausted, match="too much"):
        list(console(fleet).follow("run", messages.append))
    assert len(messages) == 1


def test_following_ends_at_once_on_a_final_error(fleet: Fleet) -> None:
    messages: list[MoonfedError] = []
    with pytest.raises(NotFound, match="'nothing'"):
        list(console(fleet).follow("nothing", messages.append))
    assert not messages
