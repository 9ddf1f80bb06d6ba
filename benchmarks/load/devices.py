"""Many devices in one process: `python -m benchmarks.load.devices PLAN_JSON ADDRESS`.

Each has a certificate and a connection of its own, fetches like a device (a file, its sha256, fsync) and submits like
one, but what it sends was made beforehand. Says `attending` when all are welcome; ends when its standard input does.
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

from moonfed.blobs import BlobDirectory, BlobRef, Incoming
from moonfed.identity import key_bytes, new_key, signing_request
from moonfed.join_token import JoinToken, parse_token
from moonfed.transport import CLIENT_OPTIONS, from_message, parts, to_message
from moonfed.v1 import blob_pb2, enrolment_pb2, enrolment_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE

SubmitCall: TypeAlias = "grpc.aio.StreamStreamCall[fleet_pb2.SubmitRequest, fleet_pb2.SubmitReply]"
OPTIONS = (*CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
AT_ONCE = 50  # enrolments and connections begun at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the devices of one process are and do."""

    names: tuple[str, ...]
    directory: str  # for what is fetched; identities lie beside it, in `identities.json`, made with `token` if absent
    updates: tuple[tuple[str, str, int], ...]  # files to send, in turn: path, sha256, bytes
    token: str

    def update(self, number: int) -> tuple[Path, BlobRef]:
        """What the device of that number sends."""
        path, sha256, size = self.updates[number % len(self.updates)]
        return Path(path), BlobRef(sha256, size)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def of(self, number: int, directory: Path) -> Plan:
        """The same for the first so many of the devices."""
        return replace(self, names=self.names[:number], directory=str(directory))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        document = json.loads(text)
        updates = tuple((str(path), str(sha256), int(size)) for path, sha256, size in document["updates"])
        return cls(**{**document, "names": tuple(document["names"]), "updates": updates})


class Device:
    """One of them."""

    def __init__(self, plan: Plan, number: int, address: str, credentials: grpc.ChannelCredentials) -> None:
        self.name = plan.names[number]
        self._path, self._ref = plan.update(number)
        self._blobs = BlobDirectory(Path(plan.directory) / self.name)
        channel = grpc.aio.secure_channel(address, credentials, OPTIONS)
        self._fleet = fleet_pb2_grpc.FleetStub(channel)

    async def attend(self, welcome: Callable[[], None]) -> None:
        """Works whenever there is an assignment, until the coordinator ends the stream."""
        request = fleet_pb2.AttendRequest(
            device=self.name, contract_version=CONTRACT_VERSION, plan_interfaces=[PLAN_INTERFACE], samples=100
        )
        async for reply in self._fleet.Attend(request):
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
            await asyncio.to_thread(self._keep, incoming)

    def _keep(self, incoming: Incoming) -> None:
        """What a device does with a blob that it has; deleted at once, before there would be a hundred of them."""
        self._blobs.put_file(incoming.finish(), incoming.ref)
        self._blobs.path(incoming.ref.sha256).unlink()

    async def _submit(self, assignment: fleet_pb2.Assignment) -> None:
        stream = self._fleet.Submit()  # type: ignore[call-arg]  # what is to be sent is written to it
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


async def _attend_all(devices: list[Device]) -> None:
    welcomes = asyncio.Semaphore(0)
    tasks = []
    for start in range(0, len(devices), AT_ONCE):
        batch = devices[start : start + AT_ONCE]
        tasks += [asyncio.create_task(device.attend(welcomes.release)) for device in batch]
        for _ in batch:
            await welcomes.acquire()
    print("attending", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    if failed := [task for task in tasks if task.done()]:
        print(f"{len(failed)} devices failed, one with {failed[0].exception()!r}", file=sys.stderr)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _identities(plan: Plan) -> dict[str, tuple[bytes, bytes]]:
    """Key and certificate by device, enrolled if that was not done before."""
    file = Path(plan.directory).parent / "identities.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    joined, absent = parse_token(plan.token), [name for name in plan.names if name not in found]
    pairs = await _some_at_once(_enrol(joined, name) for name in absent)
    found.update(zip(absent, pairs, strict=True))
    file.write_text(json.dumps(found))
    return {name: (found[name][0].encode(), found[name][1].encode()) for name in plan.names}


async def _enrol(joined: JoinToken, name: str) -> tuple[str, str]:
    key = new_key()
    request = enrolment_pb2.EnrolRequest(
        secret=joined.secret, device=name, signing_request=signing_request(key, name), contract_version=CONTRACT_VERSION
    )
    async with grpc.aio.secure_channel(joined.address, grpc.ssl_channel_credentials(joined.ca), OPTIONS) as channel:
        reply = await enrolment_pb2_grpc.EnrolmentStub(channel).Enrol(request)
    return key_bytes(key).decode(), reply.certificate.decode()


async def _some_at_once(work: Iterable[Awaitable[tuple[str, str]]]) -> list[tuple[str, str]]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(item: Awaitable[tuple[str, str]]) -> tuple[str, str]:
        async with limit:
            return await item

    return await asyncio.gather(*(one(item) for item in work))


async def _main(plan: Plan, address: str) -> None:
    held, ca = await _identities(plan), parse_token(plan.token).ca
    credentials = [grpc.ssl_channel_credentials(ca, *held[name]) for name in plan.names]
    await _attend_all([Device(plan, number, address, own) for number, own in enumerate(credentials)])


if __name__ == "__main__":
    asyncio.run(_main(Plan.from_json(sys.argv[1]), sys.argv[2]))
