"""Conversion of a run's events."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moonfed.client.convert.runs import run
from moonfed.client.records import events
from moonfed.client.records.events import Event
from moonfed.client.records.runs import Round
from moonfed.v1 import control_pb2

Message = control_pb2.RunEvent


def event(message: Message) -> Event | None:
    """Convert an event; None for one of a kind that this release does not know."""
    convert = _CONVERT.get(message.kind)
    return convert(message) if convert else None


def committed(found: Round) -> events.RoundCommitted:
    """Return the event of a round that was committed while the connection was lost."""
    return events.RoundCommitted(
        round=found.round,
        attempt=found.attempt,
        counted=found.counted,
        model=found.model,
        metrics=found.metrics,
        incidents="; ".join(f"{one.device}: {one.description}" for one in found.incidents),
    )


def _opened(message: Message) -> Event:
    return events.RoundOpened(
        round=message.round,
        attempt=message.attempt,
        cohort=tuple(message.devices),
        reused=tuple(message.reused),
    )


def _joined(message: Message) -> Event:
    return events.DevicesJoined(round=message.round, attempt=message.attempt, devices=tuple(message.devices))


def _progress(message: Message) -> Event:
    return events.Progress(
        round=message.round, attempt=message.attempt, device=message.device, fraction=message.fraction
    )


def _received(message: Message) -> Event:
    return events.UpdateReceived(
        round=message.round, attempt=message.attempt, device=message.device, pending=message.pending
    )


def _rejected(message: Message) -> Event:
    return events.UpdateRejected(
        round=message.round,
        attempt=message.attempt,
        device=message.device,
        reason=message.reason,
        pending=message.pending,
    )


def _declined(message: Message) -> Event:
    return events.DeviceDeclined(
        round=message.round,
        attempt=message.attempt,
        device=message.device,
        reason=message.reason,
        pending=message.pending,
    )


def _committed(message: Message) -> Event:
    return events.RoundCommitted(
        round=message.round,
        attempt=message.attempt,
        counted=tuple(message.devices),
        model=message.model.sha256,
        metrics=dict(message.metrics),
        incidents=message.reason,
    )


def _abandoned(message: Message) -> Event:
    return events.RoundAbandoned(
        round=message.round, attempt=message.attempt, missing=tuple(message.devices), reason=message.reason
    )


_CONVERT: Mapping[int, Callable[[Message], Event]] = {
    control_pb2.EVENT_KIND_SNAPSHOT: lambda message: events.Snapshot(run=run(message.run)),
    control_pb2.EVENT_KIND_WAITING: lambda message: events.Waiting(reason=message.reason),
    control_pb2.EVENT_KIND_ROUND_OPENED: _opened,
    control_pb2.EVENT_KIND_DEVICES_JOINED: _joined,
    control_pb2.EVENT_KIND_PROGRESS: _progress,
    control_pb2.EVENT_KIND_UPDATE_RECEIVED: _received,
    control_pb2.EVENT_KIND_UPDATE_REJECTED: _rejected,
    control_pb2.EVENT_KIND_DEVICE_DECLINED: _declined,
    control_pb2.EVENT_KIND_DEVICE_LOST: lambda message: events.DeviceLost(
        round=message.round, attempt=message.attempt, device=message.device
    ),
    control_pb2.EVENT_KIND_DEVICE_LEFT: lambda message: events.DeviceLeft(
        round=message.round, attempt=message.attempt, device=message.device
    ),
    control_pb2.EVENT_KIND_ROUND_COMMITTED: _committed,
    control_pb2.EVENT_KIND_ROUND_ABANDONED: _abandoned,
    control_pb2.EVENT_KIND_METRICS: lambda message: events.MetricsRecorded(
        round=message.round, metrics=dict(message.metrics)
    ),
    control_pb2.EVENT_KIND_PAUSED: lambda _: events.Paused(),
    control_pb2.EVENT_KIND_RESUMED: lambda _: events.Resumed(),
    control_pb2.EVENT_KIND_ENDED: lambda message: events.Ended(run=run(message.run)),
}
