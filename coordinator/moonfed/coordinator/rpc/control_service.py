"""The Control service, which operators and evaluators call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import grpc

from moonfed.blobs.store import BlobRef
from moonfed.control.codec import to_message
from moonfed.control.events import Progress
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.api.admin_api import AdminApi
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.api.release_api import ReleaseApi
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.coordinator.pki.operators import OperatorIdentities
from moonfed.coordinator.records import DeviceQuery
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.rpc.control_devices import DeviceCalls
from moonfed.coordinator.rpc.control_evaluations import EvaluationCalls
from moonfed.coordinator.rpc.control_operators import OperatorCalls
from moonfed.coordinator.rpc.control_outcomes import OutcomeCalls
from moonfed.coordinator.rpc.control_releases import ReleaseCalls
from moonfed.coordinator.rpc.flow_control import SMALL_PART, FlowControl, receive
from moonfed.coordinator.runs.create import NewRun
from moonfed.coordinator.updates.transfer import Transfer
from moonfed.errors import InvalidInput
from moonfed.formatting import count
from moonfed.sizes import human
from moonfed.transport import client as transport
from moonfed.v1 import blob_pb2, control_pb2


class ControlService(OperatorCalls, DeviceCalls, EvaluationCalls, OutcomeCalls, ReleaseCalls):
    """Serves operators. Every call checks the operator's role, and the audit trail records every change."""

    def __init__(
        self,
        operators: OperatorApi,
        admin: AdminApi,
        releases: ReleaseApi,
        authenticator: Authenticator,
        auditor: Auditor,
        *,
        enrolment: Enrolment | None,
        identities: OperatorIdentities | None,
    ) -> None:
        OperatorCalls.__init__(self, authenticator, auditor, operators, identities)
        DeviceCalls.__init__(self, authenticator, auditor, admin, enrolment)
        EvaluationCalls.__init__(self, authenticator, auditor, operators)
        OutcomeCalls.__init__(self, authenticator, auditor, operators.outcomes)
        ReleaseCalls.__init__(self, authenticator, auditor, releases)
        self._operators = operators
        self._downlink, self._uplink = FlowControl(stalled_part=SMALL_PART), FlowControl()

    async def Upload(
        self, request_iterator: AsyncIterator[control_pb2.UploadRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.UploadReply]:
        self._require(context, "Upload")
        requests = receive(request_iterator, self._uplink, object())
        async with aclosing(requests):  # a rejected part would keep its slot until the garbage collector runs
            refs = _upload_header(await anext(requests, control_pb2.UploadRequest()))
            details = (
                f"upload {count(len(refs), 'file')}, {human(sum(ref.size for ref in refs))} in all: {_digests(refs)}"
            )
            async with self._change(context, "Upload", details):
                transfer, offsets = await self._operators.upload(refs)
                try:
                    yield control_pb2.UploadReply(resume=blob_pb2.Resume(offsets=offsets))
                    await _receive_parts(requests, transfer)
                    await self._operators.store(transfer, refs)
                finally:
                    await transfer.close()
            stored = control_pb2.Stored(blobs=[transport.to_message(ref) for ref in refs])
            yield control_pb2.UploadReply(stored=stored)

    async def Fetch(  # type: ignore[override]  # serialized already
        self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[bytes]:
        self._require(context, "Fetch")
        slot = self._downlink.stream(
            object(),  # an operator may have several programs
            smallest=SMALL_PART,
            stalled=lambda: self._authenticator.disconnect(context, "it does not read its download"),
        )
        async with aclosing(chunks(self._operators.blobs, request, slot)) as parts:
            async for part in parts:
                yield part

    async def StartRun(self, request: control_pb2.StartRunRequest, context: grpc.ServicerContext) -> control_pb2.Run:
        details = f"start run {request.name!r} of bundle {request.manifest[:12]!r}"
        async with self._change(context, "StartRun", details) as change:
            new = NewRun(
                manifest=request.manifest,
                signature=request.signature,
                settings=RunSettings.from_json(request.settings),
                name=request.name,
                model=request.model,
                allow_empty=request.allow_empty,
            )
            view = await self._operators.start_run(new)
            change.details = f"start run {view.run!r} of bundle {request.manifest[:12]}"
        return to_message(control_pb2.Run, view)

    async def ListRuns(
        self, request: control_pb2.ListRunsRequest, context: grpc.ServicerContext
    ) -> control_pb2.ListRunsReply:
        self._require(context, "ListRuns")
        views = await self._operators.runs()
        return control_pb2.ListRunsReply(runs=[to_message(control_pb2.Run, view) for view in views])

    async def GetRun(self, request: control_pb2.GetRunRequest, context: grpc.ServicerContext) -> control_pb2.Run:
        self._require(context, "GetRun")
        return to_message(control_pb2.Run, await self._operators.run(request.run))

    async def GetPrivacy(
        self, request: control_pb2.GetPrivacyRequest, context: grpc.ServicerContext
    ) -> control_pb2.PrivacyReport:
        self._require(context, "GetPrivacy")
        return to_message(control_pb2.PrivacyReport, await self._operators.privacy(request.run, request.delta))

    async def ListRounds(
        self, request: control_pb2.ListRoundsRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.Round]:
        self._require(context, "ListRounds")
        listed = (
            self._operators.attempts(request.run, request.round)
            if request.round
            else self._operators.rounds(request.run, request.last)
        )
        async with aclosing(listed) as rounds:
            async for found in rounds:
                yield to_message(control_pb2.Round, found)

    async def StopRun(self, request: control_pb2.StopRunRequest, context: grpc.ServicerContext) -> control_pb2.Run:
        async with self._change(context, "StopRun", f"stop run {request.run!r}"):
            view = await self._operators.stop_run(request.run)
        return to_message(control_pb2.Run, view)

    async def PauseRun(self, request: control_pb2.PauseRunRequest, context: grpc.ServicerContext) -> control_pb2.Run:
        async with self._change(context, "PauseRun", f"pause run {request.run!r}"):
            view = await self._operators.pause_run(request.run)
        return to_message(control_pb2.Run, view)

    async def ResumeRun(self, request: control_pb2.ResumeRunRequest, context: grpc.ServicerContext) -> control_pb2.Run:
        async with self._change(context, "ResumeRun", f"resume run {request.run!r}"):
            view = await self._operators.resume_run(request.run)
        return to_message(control_pb2.Run, view)

    async def DeleteRun(
        self, request: control_pb2.DeleteRunRequest, context: grpc.ServicerContext
    ) -> control_pb2.DeleteRunReply:
        async with self._change(context, "DeleteRun", f"delete run {request.run!r}") as change:
            freed = await self._operators.delete_run(request.run)
            change.details += f", freeing {human(freed)}"
        return control_pb2.DeleteRunReply(bytes=freed)

    async def PruneRun(
        self, request: control_pb2.PruneRunRequest, context: grpc.ServicerContext
    ) -> control_pb2.PruneRunReply:
        others = f" and every {request.keep_every}th" if request.keep_every else ""
        details = f"prune the models of run {request.run!r}, keeping the last {request.keep_last}{others}"
        async with self._change(context, "PruneRun", details) as change:
            kept = Retention(last=request.keep_last, every=request.keep_every)
            models, freed = await self._operators.prune_run(request.run, kept)
            change.details += f": {count(models, 'model')}, freeing {human(freed)}"
        return control_pb2.PruneRunReply(models=models, bytes=freed)

    async def WatchRun(
        self, request: control_pb2.WatchRunRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.RunEvent]:
        self._require(context, "WatchRun")
        async with aclosing(self._operators.watch(request.run)) as events:
            async for event in events:
                if request.progress or not isinstance(event, Progress):
                    yield to_message(control_pb2.RunEvent, event)

    async def RecordMetrics(
        self, request: control_pb2.RecordMetricsRequest, context: grpc.ServicerContext
    ) -> control_pb2.RecordMetricsReply:
        details = f"record metrics of model {request.round} of run {request.run!r}"
        async with self._change(context, "RecordMetrics", details):
            await self._operators.record_metrics(request.run, request.round, dict(request.metrics))
        return control_pb2.RecordMetricsReply()

    async def ListDevices(
        self, request: control_pb2.ListDevicesRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.Device]:
        self._require(context, "ListDevices")
        query = DeviceQuery(labels=dict(request.labels), online=request.online, ineligible=request.ineligible)
        for device in await self._operators.devices(query):
            yield to_message(control_pb2.Device, device)


def _upload_header(message: control_pb2.UploadRequest) -> list[BlobRef]:
    """Return the blobs that an upload announces."""
    if not message.HasField("header"):
        raise InvalidInput("an upload must begin with its header")
    return [transport.from_message(blob) for blob in message.header.blobs]


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
