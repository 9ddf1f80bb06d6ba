"""Conversion of the Control service's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moonfed.blobs.store import BlobRef
from moonfed.coordinator.records import RoundOutcomes, RoundRecord, RunEvent, RunView
from moonfed.coordinator.rounds.sizes import updates_closing
from moonfed.coordinator.rounds.state import OpenRound
from moonfed.errors import InvalidInput
from moonfed.transport.client import from_message, to_message
from moonfed.v1 import blob_pb2, control_pb2

_RUN_STATUS = {
    "running": control_pb2.RUN_STATUS_RUNNING,
    "finished": control_pb2.RUN_STATUS_FINISHED,
    "stopped": control_pb2.RUN_STATUS_STOPPED,
    "failed": control_pb2.RUN_STATUS_FAILED,
    "paused": control_pb2.RUN_STATUS_PAUSED,
}
_ROUND_STATUS = {
    "committed": control_pb2.ROUND_STATUS_COMMITTED,
    "abandoned": control_pb2.ROUND_STATUS_ABANDONED,
}
_EVENT_KINDS = {
    "waiting": control_pb2.EVENT_KIND_WAITING,
    "round_opened": control_pb2.EVENT_KIND_ROUND_OPENED,
    "progress": control_pb2.EVENT_KIND_PROGRESS,
    "update_received": control_pb2.EVENT_KIND_UPDATE_RECEIVED,
    "update_rejected": control_pb2.EVENT_KIND_UPDATE_REJECTED,
    "device_declined": control_pb2.EVENT_KIND_DEVICE_DECLINED,
    "device_lost": control_pb2.EVENT_KIND_DEVICE_LOST,
    "device_left": control_pb2.EVENT_KIND_DEVICE_LEFT,
    "devices_joined": control_pb2.EVENT_KIND_DEVICES_JOINED,
    "paused": control_pb2.EVENT_KIND_PAUSED,
    "resumed": control_pb2.EVENT_KIND_RESUMED,
    "round_committed": control_pb2.EVENT_KIND_ROUND_COMMITTED,
    "round_abandoned": control_pb2.EVENT_KIND_ROUND_ABANDONED,
    "metrics": control_pb2.EVENT_KIND_METRICS,
    "ended": control_pb2.EVENT_KIND_ENDED,
}


def upload_header(message: control_pb2.UploadRequest) -> list[BlobRef]:
    """Convert the blobs that an upload announces."""
    if not message.HasField("header"):
        raise InvalidInput("an upload must begin with its header")
    return [from_message(blob) for blob in message.header.blobs]


def resume(offsets: Mapping[str, int]) -> control_pb2.UploadReply:
    """Tell the uploader how many bytes of each blob are stored, by sha256."""
    return control_pb2.UploadReply(resume=blob_pb2.Resume(offsets=dict(offsets)))


def stored(refs: Sequence[BlobRef]) -> control_pb2.UploadReply:
    """Confirm that blobs are durable."""
    return control_pb2.UploadReply(stored=control_pb2.Stored(blobs=[to_message(ref) for ref in refs]))


def run(view: RunView) -> control_pb2.Run:
    """Convert a run."""
    record = view.record
    return control_pb2.Run(
        run=record.run,
        status=_RUN_STATUS[record.status],
        settings=record.settings.to_json(),
        manifest=to_message(record.manifest),
        method=record.method,
        round=view.committed,
        model=_blob(view.model),
        open_round=_open_round(view, view.open_round) if view.open_round else None,
        waiting=view.waiting,
        created=record.created,
        initial_metrics=dict(view.initial_metrics),
        initial_model=to_message(record.initial),
        signature=_blob(record.signature),
        eligible=view.eligible,
        checking=view.checking,
        ineligible=[
            control_pb2.IneligibleDevices(reason=reason, devices=devices) for reason, devices in view.ineligible.items()
        ],
        reason=record.reason,
        clipped=dict(view.clipped),
        absent_classes=view.absent_classes,
    )


def _open_round(view: RunView, current: OpenRound) -> control_pb2.OpenRound:
    return control_pb2.OpenRound(
        round=current.round,
        attempt=current.attempt,
        cohort=current.cohort,
        reported=sorted(current.reported),
        rejected=sorted(current.rejected),
        lost=sorted(current.lost),
        declined=sorted(current.declined),
        seconds=view.open_seconds,
        target=updates_closing(view.record.settings, current.drawn),
        progress=dict(view.progress),
        reasons=dict(view.reasons),
        replacements=sorted(current.replacements),
        left=sorted(current.left),
    )


def round_message(record: RoundRecord) -> control_pb2.Round:
    """Convert a committed or abandoned round."""
    return control_pb2.Round(
        round=record.id.round,
        attempt=record.id.attempt,
        status=_ROUND_STATUS[record.status],
        model=_blob(record.model),
        counted=record.counted,
        missing=record.missing,
        reason=record.reason,
        metrics=dict(record.metrics),
        seconds=record.seconds,
        updates=record.updates,
        phases=dict(record.phases),
        outcomes=dict(record.outcomes),
        received_bytes=record.received_bytes,
        sent_bytes=record.sent_bytes,
        incidents=[
            control_pb2.Incident(device=incident.device, description=incident.description)
            for incident in record.incidents
        ],
    )


def round_outcomes(found: RoundOutcomes) -> control_pb2.RoundOutcomes:
    """Convert the outcome of each device in an attempt."""
    return control_pb2.RoundOutcomes(
        round=found.id.round,
        attempt=found.id.attempt,
        status=_ROUND_STATUS[found.status],
        outcomes=found.outcomes,
        time=found.time,
    )


def event(item: RunEvent | RunView) -> control_pb2.RunEvent:
    """Convert an event of a watched run; a view is the snapshot at the beginning."""
    if isinstance(item, RunView):
        return control_pb2.RunEvent(kind=control_pb2.EVENT_KIND_SNAPSHOT, run=run(item))
    return control_pb2.RunEvent(
        kind=_EVENT_KINDS[item.kind],
        round=item.round,
        attempt=item.attempt,
        device=item.device,
        devices=item.devices,
        reason=item.reason,
        model=_blob(item.model),
        metrics=dict(item.metrics),
        fraction=item.fraction,
        run=run(item.run) if item.run else None,
        pending=item.pending,
        reused=item.reused,
    )


def _blob(ref: BlobRef | None) -> blob_pb2.Blob | None:
    return to_message(ref) if ref else None
