"""Many devices in one process: `python -m benchmarks.load.synthetic_devices SPEC_JSON ADDRESS`.

Each device has its own certificate and connection and transfers models as a real one does (file, sha256, fsync), but
submits an update prepared in advance. Prints `connected` when all are online; exits at the end of standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeAlias

import grpc

from moonfed.blobs.store import BlobDirectory, BlobRef, Incoming
from moonfed.transport.client import CLIENT_OPTIONS, from_message, parts, to_message
from moonfed.transport.identity import key_bytes, new_key, signing_request
from moonfed.transport.join_token import JoinToken, parse_token
from moonfed.v1 import blob_pb2, enrolment_pb2, enrolment_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE

SubmitCall: TypeAlias = "grpc.aio.StreamStreamCall[fleet_pb2.SubmitRequest, fleet_pb2.SubmitReply]"
OPTIONS = (*CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
CONCURRENCY = 50  # enrolments and connections in flight
RETRY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """Devices of one process, and the updates they submit."""

    names: tuple[str, ...]
    directory: str  # for fetched blobs; `identities.json` is next to it, created with `token` if absent
    updates: tuple[tuple[str, str, int], ...]  # files to submit, in turn: path, sha256, bytes
    token: str

    def update(self, number: int) -> tuple[Path, BlobRef]:
        """Return the file that the device of that number submits."""
        path, sha256, size = self.updates[number % len(self.updates)]
        return Path(path), BlobRef(sha256, size)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def of(self, number: int, directory: Path) -> FleetSpec:
        """Return the specification of the first `number` devices."""
        return replace(self, names=self.names[:number], directory=str(directory))

    @classmethod
    def from_json(cls, text: str) -> FleetSpec:
        document = json.loads(text)
        updates = tuple((str(path), str(sha256), int(size)) for path, sha256, size in document["updates"])
        return cls(**{**document, "names": tuple(document["names"]), "updates": updates})


class SyntheticDevice:
    """One synthetic device."""

    def __init__(self, spec: FleetSpec, number: int, address: str, credentials: grpc.ChannelCredentials) -> None:
        self.name = spec.names[number]
        self._path, self._ref = spec.update(number)
        self._blobs = BlobDirectory(Path(spec.directory) / self.name)
        channel = grpc.aio.secure_channel(address, credentials, OPTIONS)
        self._fleet = fleet_pb2_grpc.FleetStub(channel)

    async def connect(self, welcome: Callable[[], None]) -> None:
        """Handle assignments until the coordinator ends the stream."""
        request = fleet_pb2.ConnectRequest(
            device=self.name, contract_version=CONTRACT_VERSION, plan_interfaces=[PLAN_INTERFACE], samples=100
        )
        async for reply in self._fleet.Connect(request):
            if reply.HasField("welcome"):
                welcome()
            elif reply.HasField("assignment"):
                await self._work(reply.assignment)

    async def _work(self, assignment: fleet_pb2.Assignment) -> None:
        await self._fetch(from_message(assignment.blobs["model"]))
        await self._submit(assignment)

    async def _fetch(self, ref: BlobRef) -> None:
        with self._blobs.receive(ref) as incoming:
            request = blob_pb2.FetchRequest(device=self.name, sha256=ref.sha256)
            async for chunk in self._fleet.Fetch(request):
                incoming.append(incoming.offset, chunk.data)
            await asyncio.to_thread(self._store, incoming)

    def _store(self, incoming: Incoming) -> None:
        """Store a fetched blob as a device does, then delete it to save disk space."""
        self._blobs.put_file(incoming.finish(), incoming.ref)
        self._blobs.path(incoming.ref.sha256).unlink()

    async def _submit(self, assignment: fleet_pb2.Assignment) -> None:
        stream = self._fleet.Submit()  # type: ignore[call-arg]  # requests are written to the stream
        await stream.write(fleet_pb2.SubmitRequest(header=self._header(assignment)))
        offsets = dict((await _reply(stream)).resume.offsets)
        for part in parts({self._ref: self._path}, offsets):
            await stream.write(fleet_pb2.SubmitRequest(part=part))
        await stream.write(fleet_pb2.SubmitRequest(commit=blob_pb2.Commit()))
        await stream.done_writing()
        receipt = (await _reply(stream)).receipt
        if receipt.sha256["model"] != self._ref.sha256:
            raise RuntimeError(f"{self.name} has no receipt")

    def _header(self, assignment: fleet_pb2.Assignment) -> fleet_pb2.SubmitHeader:
        return fleet_pb2.SubmitHeader(
            device=self.name,
            run=assignment.run,
            round=assignment.round,
            attempt=assignment.attempt,
            blobs={"model": to_message(self._ref)},
            samples=100,
            steps=10,
            metrics={"loss": 1.0},
        )


async def _reply(stream: SubmitCall) -> fleet_pb2.SubmitReply:
    reply = await stream.read()
    if not isinstance(reply, fleet_pb2.SubmitReply):
        raise RuntimeError("the stream ended early")
    return reply


async def _connect_all(devices: list[SyntheticDevice]) -> None:
    welcomes = asyncio.Semaphore(0)
    tasks = []
    for start in range(0, len(devices), CONCURRENCY):
        batch = devices[start : start + CONCURRENCY]
        tasks += [asyncio.create_task(device.connect(welcomes.release)) for device in batch]
        for _ in batch:
            await welcomes.acquire()
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    if failed := [task for task in tasks if task.done()]:
        print(f"{len(failed)} devices failed, one with {failed[0].exception()!r}", file=sys.stderr)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _identities(spec: FleetSpec) -> dict[str, tuple[bytes, bytes]]:
    """Return key and certificate by device; enrol devices that have none yet."""
    file = Path(spec.directory).parent / "identities.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    joined, absent = parse_token(spec.token), [name for name in spec.names if name not in found]
    pairs = await _bounded_gather(_enrol(joined, name) for name in absent)
    found.update(zip(absent, pairs, strict=True))
    file.write_text(json.dumps(found))
    return {name: (found[name][0].encode(), found[name][1].encode()) for name in spec.names}


async def _enrol(joined: JoinToken, name: str) -> tuple[str, str]:
    key = new_key()
    request = enrolment_pb2.EnrolRequest(
        secret=joined.secret, device=name, signing_request=signing_request(key, name), contract_version=CONTRACT_VERSION
    )
    async with grpc.aio.secure_channel(joined.address, grpc.ssl_channel_credentials(joined.ca), OPTIONS) as channel:
        reply = await _admitted(enrolment_pb2_grpc.EnrolmentStub(channel), request)
    return key_bytes(key).decode(), reply.certificate.decode()


async def _admitted(
    stub: enrolment_pb2_grpc.EnrolmentAsyncStub, request: enrolment_pb2.EnrolRequest
) -> enrolment_pb2.EnrolReply:
    """Enrol as soon as the rate limit of this machine's address allows it."""
    while not (reply := await _enrolled(stub, request)):
        await asyncio.sleep(RETRY_SECONDS)
    return reply


async def _enrolled(
    stub: enrolment_pb2_grpc.EnrolmentAsyncStub, request: enrolment_pb2.EnrolRequest
) -> enrolment_pb2.EnrolReply | None:
    """Enrol; return None if the coordinator asks to retry later."""
    try:
        return await stub.Enrol(request)
    except grpc.aio.AioRpcError as error:
        if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return None
        raise


async def _bounded_gather(work: Iterable[Awaitable[tuple[str, str]]]) -> list[tuple[str, str]]:
    limit = asyncio.Semaphore(CONCURRENCY)

    async def one(item: Awaitable[tuple[str, str]]) -> tuple[str, str]:
        async with limit:
            return await item

    return await asyncio.gather(*(one(item) for item in work))


async def _main(spec: FleetSpec, address: str) -> None:
    held, ca = await _identities(spec), parse_token(spec.token).ca
    credentials = [grpc.ssl_channel_credentials(ca, *held[name]) for name in spec.names]
    await _connect_all([SyntheticDevice(spec, number, address, own) for number, own in enumerate(credentials)])


def main() -> None:
    asyncio.run(_main(FleetSpec.from_json(sys.argv[1]), sys.argv[2]))


if __name__ == "__main__":
    main()
