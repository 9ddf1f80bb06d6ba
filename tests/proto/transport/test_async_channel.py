"""An operator's asynchronous calls check replies, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from moonfed.errors import Corrupt, InvalidInput
from moonfed.transport.async_channel import open_async_channel
from moonfed.transport.identity import load_identity
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc
from tests.support.malicious_coordinator import Malicious, malicious_coordinator

Calls = Callable[["control_pb2_grpc.ControlAsyncStub"], Awaitable[None]]


@pytest.fixture
def malicious() -> Iterator[Malicious]:
    with malicious_coordinator() as found:
        yield found


@pytest.fixture
def do(malicious: Malicious, tmp_path: Path) -> Callable[[Calls], None]:
    identity = load_identity(malicious.write_identity(tmp_path / "operator"))

    async def run(calls: Calls) -> None:
        channel = open_async_channel(malicious.address, identity)
        try:
            await calls(control_pb2_grpc.ControlStub(channel))
        finally:
            await channel.close(None)

    return lambda calls: asyncio.run(run(calls))


def test_a_single_reply_is_checked(malicious: Malicious, do: Callable[[Calls], None]) -> None:
    async def calls(control: control_pb2_grpc.ControlAsyncStub) -> None:
        malicious.replies["GetRun"] = control_pb2.Run(run="fine", waiting="\x1b[2J")
        assert (await control.GetRun(control_pb2.GetRunRequest(run="fine"))).waiting == " [2J"
        for wrong in (control_pb2.Run(run="/etc/x"), b"\xff", control_pb2.Run()):
            malicious.replies["GetRun"] = wrong
            with pytest.raises(Corrupt):
                await control.GetRun(control_pb2.GetRunRequest(run="fine"))

    do(calls)


def test_streams_and_uploads_are_checked(malicious: Malicious, do: Callable[[Calls], None]) -> None:
    malicious.replies |= {
        "ListRounds": [control_pb2.Round(run="r", missing=["cam-1"]), control_pb2.Round(run="r", missing=["../x"])],
        "Upload": control_pb2.UploadReply(resume=blob_pb2.Resume(offsets={"../x": 0})),
    }

    async def calls(control: control_pb2_grpc.ControlAsyncStub) -> None:
        rounds = aiter(control.ListRounds(control_pb2.ListRoundsRequest(run="x")))
        assert (await anext(rounds)).missing == ["cam-1"]
        with pytest.raises(Corrupt):
            await anext(rounds)
        call = control.Upload(None)
        await call.write(control_pb2.UploadRequest())
        with pytest.raises(Corrupt):
            await anext(aiter(call))

    do(calls)


def test_plaintext_stays_on_this_machine() -> None:
    with pytest.raises(InvalidInput, match="without TLS"):
        open_async_channel("hub.example:7443", None)
