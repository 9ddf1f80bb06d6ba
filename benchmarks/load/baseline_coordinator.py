"""The bare script: `python -m benchmarks.load.baseline_coordinator AUTHORITY MODEL SPOOL DEVICES`.

Does the minimum for a round: TLS with client certificates, a model down, updates up, each hashed and fsynced before
its receipt. No round state, checks, database or aggregation. Prints its port; starts a round at each line of standard
input, and prints a line when all updates are in.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from moonfed.blobs.store import ref_of_file
from moonfed.transport.client import PART_SIZE, SERVER_OPTIONS, to_message
from moonfed.v1 import blob_pb2, fleet_pb2, fleet_pb2_grpc


class BaselineFleet(fleet_pb2_grpc.FleetServicer):
    """The methods of Fleet that a round needs; the others stay unimplemented."""

    def __init__(self, model: Path, spool: Path, devices: int) -> None:
        self._model, self._ref, self._spool, self._devices = model, ref_of_file(model), spool, devices
        self._round, self._received = 0, 0
        self._turn = asyncio.Condition()

    async def begin(self) -> None:
        async with self._turn:
            self._round, self._received = self._round + 1, 0
            self._turn.notify_all()

    async def all_in(self) -> None:
        async with self._turn:
            await self._turn.wait_for(lambda: self._received == self._devices)

    async def Connect(
        self, request: fleet_pb2.ConnectRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[fleet_pb2.ConnectReply]:
        sent = self._round
        yield fleet_pb2.ConnectReply(welcome=fleet_pb2.Welcome())
        while True:
            async with self._turn:
                await self._turn.wait_for(lambda: self._round > sent)  # noqa: B023
            sent = self._round
            blobs = {"model": to_message(self._ref)}
            yield fleet_pb2.ConnectReply(
                assignment=fleet_pb2.Assignment(run="bare", round=sent, attempt=1, blobs=blobs)
            )

    async def Fetch(
        self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[blob_pb2.Chunk]:
        with self._model.open("rb") as file:
            while data := file.read(PART_SIZE):
                yield blob_pb2.Chunk(data=data)

    async def Submit(
        self, request_iterator: AsyncIterator[fleet_pb2.SubmitRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[fleet_pb2.SubmitReply]:
        header = (await anext(request_iterator)).header
        ref, digest = header.blobs["model"], hashlib.sha256()
        yield fleet_pb2.SubmitReply(resume=blob_pb2.Resume(offsets={ref.sha256: 0}))
        with (self._spool / f"{self._round}-{header.device}").open("wb") as file:
            async for request in request_iterator:
                file.write(request.part.data)
                digest.update(request.part.data)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        if digest.hexdigest() != ref.sha256:
            await context.abort(grpc.StatusCode.DATA_LOSS, "another sha256")
        yield fleet_pb2.SubmitReply(receipt=fleet_pb2.Receipt(sha256={"model": ref.sha256}))
        async with self._turn:
            self._received += 1
            self._turn.notify_all()


async def _main(authority: Path, model: Path, spool: Path, devices: int) -> None:
    ca, pair = (authority / "ca.pem").read_bytes(), _pair(authority)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    fleet = BaselineFleet(model, spool, devices)  # type: ignore[abstract]  # abstract in the types only
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    credentials = grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=True)
    print(server.add_secure_port("127.0.0.1:0", credentials), flush=True)
    await server.start()
    while await asyncio.to_thread(sys.stdin.readline):
        await fleet.begin()
        await fleet.all_in()
        print("all in", flush=True)
        for file in spool.iterdir():  # so that the next round creates its files, as the coordinator does
            file.unlink()
    await server.stop(0)


def _pair(authority: Path) -> tuple[bytes, bytes]:
    return (authority / "server-key.pem").read_bytes(), (authority / "server.pem").read_bytes()


def main() -> None:
    asyncio.run(_main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))


if __name__ == "__main__":
    main()
