"""The Control service, which operators and evaluators call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import grpc

from moonfed.blobs import BlobRef
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.coordinator.rpc import convert_control as convert
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.rpc.convert_settings import retention, run_settings
from moonfed.coordinator.rpc.flow_control import SMALL_PART, FlowControl, receive
from moonfed.coordinator.runs.create import NewRun
from moonfed.coordinator.updates.transfer import Transfer
from moonfed.errors import InvalidInput, WrongState
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc

_audit = logging.getLogger("moonfed.coordinator.audit")


class ControlService(control_pb2_grpc.ControlServicer):
    """Serves operators; every call needs an operator's certificate."""

    def __init__(self, operators: OperatorApi, authenticator: Authenticator, enrolment: Enrolment | None) -> None:
        self._operators, self._authenticator, self._enrolment = operators, authenticator, enrolment
        self._downlink, self._uplink = FlowControl(), FlowControl()

    async def Upload(  # noqa: N802, D102 - named and described in the .proto
        self, request_iterator: AsyncIterator[control_pb2.UploadRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.UploadReply]:
        operator = self._authenticator.operator(context)
        requests = receive(request_iterator, self._uplink, object())
        refs = convert.upload_header(await anext(requests, control_pb2.UploadRequest()))
        transfer, offsets = await self._operators.upload(refs)
        try:
            yield convert.resume(offsets)
            await _receive_parts(requests, transfer)
            await self._operators.store(transfer, refs)
            size = sum(ref.size for ref in refs)
            _audit.info("%s uploaded %d files of %d bytes: %s", operator, len(refs), size, _digests(refs))
            yield convert.stored(refs)
        finally:
            await transfer.close()

    async def Fetch(  # type: ignore[override]  # noqa: N802, D102 - serialized already
        self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[bytes]:
        self._authenticator.operator(context)
        slot = self._downlink.stream(
            object(),  # operators and evaluators share one identity
            smallest=SMALL_PART,
            stalled=lambda: self._authenticator.disconnect(context, "it does not read its download"),
        )
        async with aclosing(chunks(self._operators.blobs, request, slot)) as parts:
            async for part in parts:
                yield part

    async def StartRun(  # noqa: N802, D102
        self, request: control_pb2.StartRunRequest, context: grpc.ServicerContext
    ) -> control_pb2.Run:
        operator = self._authenticator.operator(context)
        new = NewRun(
            manifest=request.manifest,
            signature=request.signature,
            settings=run_settings(request.settings),
            name=request.name,
            model=request.model,
        )
        view = await self._operators.start_run(new)
        _audit.info("%s started run %r of bundle %s", operator, view.record.run, request.manifest[:12])
        return convert.run(view)

    async def ListRuns(  # noqa: N802, D102
        self, request: control_pb2.ListRunsRequest, context: grpc.ServicerContext
    ) -> control_pb2.ListRunsReply:
        self._authenticator.operator(context)
        views = await self._operators.runs()
        return control_pb2.ListRunsReply(runs=[convert.run(view) for view in views])

    async def GetRun(  # noqa: N802, D102
        self, request: control_pb2.GetRunRequest, context: grpc.ServicerContext
    ) -> control_pb2.Run:
        self._authenticator.operator(context)
        return convert.run(await self._operators.run(request.run))

    async def ListRounds(  # noqa: N802, D102
        self, request: control_pb2.ListRoundsRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.Round]:
        self._authenticator.operator(context)
        async with aclosing(self._operators.rounds(request.run)) as rounds:
            async for found in rounds:
                yield convert.round_message(found)

    async def StopRun(  # noqa: N802, D102
        self, request: control_pb2.StopRunRequest, context: grpc.ServicerContext
    ) -> control_pb2.Run:
        operator = self._authenticator.operator(context)
        view = await self._operators.stop_run(request.run)
        _audit.info("%s stopped run %r", operator, view.record.run)
        return convert.run(view)

    async def DeleteRun(  # noqa: N802, D102
        self, request: control_pb2.DeleteRunRequest, context: grpc.ServicerContext
    ) -> control_pb2.DeleteRunReply:
        operator = self._authenticator.operator(context)
        freed = await self._operators.delete_run(request.run)
        _audit.info("%s deleted run %r, %d bytes", operator, request.run, freed)
        return control_pb2.DeleteRunReply(bytes=freed)

    async def PruneRun(  # noqa: N802, D102
        self, request: control_pb2.PruneRunRequest, context: grpc.ServicerContext
    ) -> control_pb2.PruneRunReply:
        operator = self._authenticator.operator(context)
        kept = retention(request.retention)
        models, freed = await self._operators.prune_run(request.run, kept)
        line = "%s pruned run %r to the last %d models and every %dth: %d models, %d bytes"
        _audit.info(line, operator, request.run, kept.last, kept.every, models, freed)
        return control_pb2.PruneRunReply(models=models, bytes=freed)

    async def WatchRun(  # noqa: N802, D102
        self, request: control_pb2.WatchRunRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.RunEvent]:
        self._authenticator.operator(context)
        async with aclosing(self._operators.watch(request.run)) as events:
            async for event in events:
                yield convert.event(event)

    async def RecordMetrics(  # noqa: N802, D102
        self, request: control_pb2.RecordMetricsRequest, context: grpc.ServicerContext
    ) -> control_pb2.RecordMetricsReply:
        operator = self._authenticator.operator(context)
        await self._operators.record_metrics(request.run, request.round, dict(request.metrics))
        _audit.info("%s recorded metrics of model %d of run %r", operator, request.round, request.run)
        return control_pb2.RecordMetricsReply()

    async def ListDevices(  # noqa: N802, D102
        self, request: control_pb2.ListDevicesRequest, context: grpc.ServicerContext
    ) -> control_pb2.ListDevicesReply:
        self._authenticator.operator(context)
        devices = await self._operators.devices()
        return control_pb2.ListDevicesReply(devices=[convert.device(device) for device in devices])

    async def CreateToken(  # noqa: N802, D102
        self, request: control_pb2.CreateTokenRequest, context: grpc.ServicerContext
    ) -> control_pb2.CreateTokenReply:
        operator = self._authenticator.operator(context)
        if self._enrolment is None:
            raise WrongState("this coordinator runs with --insecure: devices need no join token")
        token, expires = await asyncio.to_thread(self._enrolment.create_token, request.uses, request.valid_seconds)
        line = "%s created a join token for %d devices, valid for %.0f s"
        _audit.info(line, operator, request.uses, request.valid_seconds)
        return control_pb2.CreateTokenReply(token=str(token), expires=expires)


def _digests(refs: Sequence[BlobRef]) -> str:
    return ", ".join(ref.sha256[:12] for ref in refs)


async def _receive_parts(requests: AsyncGenerator[control_pb2.UploadRequest, None], transfer: Transfer) -> None:
    """Write parts until the commit, without which nothing counts."""
    async for request in requests:
        if request.HasField("commit"):
            await requests.aclose()  # releases its slot
            return
        await transfer.append(request.part.sha256, request.part.offset, request.part.data)
    raise InvalidInput("the stream ended without a commit; the parts received are kept and can be resumed")
