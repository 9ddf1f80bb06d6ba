"""The one module that turns messages into the domain's values and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from coordinator.aggregation.defence import Defence, parse_reducer
from coordinator.attendance import Assignment, Ended, Introduction
from coordinator.records import AttemptId, DeviceRecord, RoundRecord, RunEvent, RunView
from coordinator.rounds.asynchronous import Asynchronous
from coordinator.rounds.retention import Retention
from coordinator.rounds.settings import Amount, Sampling, Settings
from coordinator.rounds.state import OpenRound
from coordinator.updates import UpdateHeader
from moonfed import CONTRACT_VERSION, RELEASE
from moonfed.blobs import BlobRef
from moonfed.encodings import Encodings, parse_encoding
from moonfed.errors import InvalidInput, TooLate, WrongState
from moonfed.transport import from_message, to_message
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2

_RUN_STATUS = {
    "running": control_pb2.RUN_STATUS_RUNNING,
    "finished": control_pb2.RUN_STATUS_FINISHED,
    "stopped": control_pb2.RUN_STATUS_STOPPED,
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
    "update_refused": control_pb2.EVENT_KIND_UPDATE_REFUSED,
    "device_declined": control_pb2.EVENT_KIND_DEVICE_DECLINED,
    "device_lost": control_pb2.EVENT_KIND_DEVICE_LOST,
    "round_committed": control_pb2.EVENT_KIND_ROUND_COMMITTED,
    "round_abandoned": control_pb2.EVENT_KIND_ROUND_ABANDONED,
    "metrics": control_pb2.EVENT_KIND_METRICS,
    "ended": control_pb2.EVENT_KIND_ENDED,
}
_SAMPLING: Mapping[Sampling, control_pb2.Sampling.ValueType] = {
    "uniform": control_pb2.SAMPLING_UNIFORM,
    "samples": control_pb2.SAMPLING_SAMPLES,
}

# Messages in


def introduction(device: str, request: fleet_pb2.AttendRequest) -> Introduction:
    """What a device says of itself."""
    return Introduction(
        device=device,
        contract_version=request.contract_version,
        plan_interfaces=tuple(request.plan_interfaces),
        platform=dict(request.platform),
        samples=request.samples,
        runs=tuple(request.runs),
        labels=dict(request.labels),
        encodings=tuple(request.encodings),
    )


def attempt(
    message: fleet_pb2.ReportRequest | fleet_pb2.DeclineRequest | fleet_pb2.SubmitHeader,
) -> AttemptId:
    """The run, round and attempt that a message is about."""
    return AttemptId(run=message.run, round=message.round, attempt=message.attempt)


def update_header(device: str, message: fleet_pb2.SubmitHeader) -> UpdateHeader:
    """The header of a submitted update."""
    return UpdateHeader(
        id=attempt(message),
        device=device,
        blobs={role: from_message(blob) for role, blob in message.blobs.items()},
        samples=message.samples,
        steps=message.steps,
        metrics=dict(message.metrics),
        encoding=parse_encoding("encoding", message.encoding),
    )


def upload_header(message: control_pb2.UploadRequest) -> list[BlobRef]:
    """The blobs that an upload announces."""
    if not message.HasField("header"):
        raise InvalidInput("an upload must begin with its header")
    return [from_message(blob) for blob in message.header.blobs]


def settings(message: control_pb2.RunSettings) -> Settings:
    """A run's settings."""
    return Settings(
        rounds=message.rounds,
        cohort=_amount(message.cohort),
        minimum_devices=message.minimum_devices,
        quorum=_amount(message.quorum),
        deadline_seconds=message.deadline_seconds,
        patience_seconds=message.patience_seconds,
        seed=message.seed,
        sampling=_sampling(message.sampling),
        encodings=Encodings(
            down=parse_encoding("downlink_encoding", message.downlink_encoding),
            up=parse_encoding("uplink_encoding", message.uplink_encoding),
        ),
        retention=retention(message.retention) if message.HasField("retention") else Retention(),
        over_selection=message.over_selection,
        labels=dict(message.labels),
        asynchronous=_asynchronous(message),
        defence=_defence(message.defence),
    )


def _defence(message: control_pb2.Defence) -> Defence:
    return Defence(
        weight_cap=message.weight_cap,
        clip_norm=message.clip_norm,
        clip_factor=message.clip_factor,
        reducer=parse_reducer(message.reducer or "mean"),
        byzantine=message.byzantine,
    )


def retention(message: control_pb2.Retention) -> Retention:
    """Which global models are kept."""
    return Retention(last=message.last, every=message.every)


def _asynchronous(message: control_pb2.RunSettings) -> Asynchronous | None:
    if not message.HasField("asynchronous"):
        return None
    return Asynchronous(buffer=message.asynchronous.buffer, max_staleness=message.asynchronous.max_staleness)


def _sampling(value: int) -> Sampling:
    if value in (control_pb2.SAMPLING_UNSPECIFIED, control_pb2.SAMPLING_UNIFORM):
        return "uniform"
    if value == control_pb2.SAMPLING_SAMPLES:
        return "samples"
    raise InvalidInput(f"sampling is {value}, which this release does not know; it must be uniform or samples")


def _amount(message: control_pb2.Amount) -> Amount:
    if message.WhichOneof("amount") == "count":
        return Amount(count=message.count)
    return Amount(fraction=message.fraction)  # an empty amount becomes the fraction 0, which is refused


# Messages out


def welcome() -> fleet_pb2.AttendReply:
    """The first thing that an attending device is told."""
    return fleet_pb2.AttendReply(welcome=fleet_pb2.Welcome(contract_version=CONTRACT_VERSION, coordinator=RELEASE))


def attend_reply(told: Assignment | Ended) -> fleet_pb2.AttendReply:
    """What an attending device is told after that."""
    return assignment(told) if isinstance(told, Assignment) else ended(told)


def ended(told: Ended) -> fleet_pb2.AttendReply:
    """The end of a run."""
    return fleet_pb2.AttendReply(
        ended=fleet_pb2.Ended(run=told.run, manifest=_blob(told.manifest), model=_blob(told.model), rounds=told.rounds)
    )


def assignment(work: Assignment) -> fleet_pb2.AttendReply:
    """One device's work in one round."""
    return fleet_pb2.AttendReply(
        assignment=fleet_pb2.Assignment(
            run=work.id.run,
            round=work.id.round,
            attempt=work.id.attempt,
            manifest=to_message(work.manifest),
            blobs={role: to_message(ref) for role, ref in work.blobs.items()},
            epochs=work.epochs,
            batch_size=work.batch_size,
            hyperparameters=dict(work.hyperparameters),
            seed=work.seed,
            views=work.views,
            downlink_encoding=str(work.encodings.down),
            uplink_encoding=str(work.encodings.up),
            counted_round=work.counted.round if work.counted else 0,
            counted_attempt=work.counted.attempt if work.counted else 0,
        )
    )


def report_reply(problem: WrongState | None) -> fleet_pb2.ReportReply:
    """Whether a device is to stop, why, and when it may be wanted again."""
    seconds = problem.come_back_seconds if isinstance(problem, TooLate) else 0.0
    return fleet_pb2.ReportReply(stop=problem is not None, reason=str(problem or ""), come_back_seconds=seconds)


def resume(offsets: Mapping[str, int]) -> blob_pb2.Resume:
    """What is held already of an upload."""
    return blob_pb2.Resume(offsets=dict(offsets))


def receipt(header: UpdateHeader) -> fleet_pb2.SubmitReply:
    """The word that an update counts."""
    return fleet_pb2.SubmitReply(
        receipt=fleet_pb2.Receipt(
            run=header.id.run,
            round=header.id.round,
            attempt=header.id.attempt,
            sha256={role: ref.sha256 for role, ref in header.blobs.items()},
        )
    )


def stored(refs: Sequence[BlobRef]) -> control_pb2.UploadReply:
    """The word that blobs are durable."""
    return control_pb2.UploadReply(stored=control_pb2.Stored(blobs=[to_message(ref) for ref in refs]))


def run(view: RunView) -> control_pb2.Run:
    """A run."""
    record = view.record
    return control_pb2.Run(
        run=record.run,
        status=_RUN_STATUS[record.status],
        settings=settings_message(record.settings),
        manifest=to_message(record.manifest),
        method=record.method,
        round=view.committed,
        model=_blob(view.model),
        open_round=_open_round(view.open_round) if view.open_round else None,
        waiting=view.waiting,
        created=record.created,
        initial_metrics=dict(view.initial_metrics),
        initial_model=to_message(record.initial),
    )


def round_message(record: RoundRecord) -> control_pb2.Round:
    """A committed or abandoned round."""
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
        offences=[control_pb2.Offence(device=offence.device, what=offence.what) for offence in record.offences],
    )


def event(item: RunEvent | RunView) -> control_pb2.RunEvent:
    """What those who watch a run are told; a view is the snapshot at the beginning."""
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
    )


def device(record: DeviceRecord) -> control_pb2.Device:
    """A known device."""
    return control_pb2.Device(
        device=record.device,
        attending=record.attending,
        enrolled=record.enrolled,
        last_seen=record.last_seen,
        certificate_expires=record.certificate_expires,
        platform=dict(record.platform),
        labels=dict(record.labels),
    )


def settings_message(values: Settings) -> control_pb2.RunSettings:
    """A run's settings."""
    return control_pb2.RunSettings(
        rounds=values.rounds,
        cohort=_amount_message(values.cohort),
        minimum_devices=values.minimum_devices,
        quorum=_amount_message(values.quorum),
        deadline_seconds=values.deadline_seconds,
        patience_seconds=values.patience_seconds,
        seed=values.seed,
        sampling=_SAMPLING[values.sampling],
        downlink_encoding=str(values.encodings.down),
        uplink_encoding=str(values.encodings.up),
        retention=control_pb2.Retention(last=values.retention.last, every=values.retention.every),
        over_selection=values.over_selection,
        labels=dict(values.labels),
        asynchronous=_asynchronous_message(values),
        defence=control_pb2.Defence(**asdict(values.defence)) if values.defence else None,
    )


def _asynchronous_message(values: Settings) -> control_pb2.Asynchronous | None:
    chosen = values.asynchronous
    return control_pb2.Asynchronous(buffer=chosen.buffer, max_staleness=chosen.max_staleness) if chosen else None


def _blob(ref: BlobRef | None) -> blob_pb2.Blob | None:
    return to_message(ref) if ref else None


def _amount_message(amount: Amount) -> control_pb2.Amount:
    if amount.count is not None:
        return control_pb2.Amount(count=amount.count)
    return control_pb2.Amount(fraction=amount.fraction or 0.0)


def _open_round(current: OpenRound) -> control_pb2.OpenRound:
    return control_pb2.OpenRound(
        round=current.round,
        attempt=current.attempt,
        cohort=current.cohort,
        reported=sorted(current.reported),
        refused=sorted(current.refused),
        lost=sorted(current.lost),
        declined=sorted(current.declined),
    )
