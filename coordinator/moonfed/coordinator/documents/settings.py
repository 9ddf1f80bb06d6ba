"""A run's settings as JSON values."""

from __future__ import annotations

from typing import Any

from moonfed.coordinator.documents.values import amount_text
from moonfed.v1 import control_pb2


def settings_document(settings: control_pb2.RunSettings) -> dict[str, Any]:
    """Return a run's settings."""
    return {
        "rounds": settings.rounds,
        "cohort": amount_text(settings.cohort),
        "minimum_devices": settings.minimum_devices,
        "quorum": amount_text(settings.quorum),
        "deadline_seconds": settings.deadline_seconds,
        "max_attempts": settings.max_attempts,
        "heartbeat_timeout_seconds": settings.heartbeat_timeout_seconds,
        "seed": settings.seed,
        "sampling": control_pb2.Sampling.Name(settings.sampling).removeprefix("SAMPLING_").lower(),
        "downlink_encoding": settings.downlink_encoding,
        "uplink_encoding": settings.uplink_encoding,
        "retention": {"last": settings.retention.last, "every": settings.retention.every},
        "over_selection": settings.over_selection,
        "labels": dict(settings.labels),
        "trusted_labels": settings.trusted_labels,
        "asynchronous": _asynchronous_document(settings),
        "robust": _robust_document(settings.robust) if settings.HasField("robust") else None,
        "exclude_after": settings.exclude_after,
    }


def _asynchronous_document(settings: control_pb2.RunSettings) -> dict[str, int] | None:
    chosen = settings.asynchronous
    if not settings.HasField("asynchronous"):
        return None
    return {"buffer": chosen.buffer, "max_staleness": chosen.max_staleness}


def _robust_document(robust: control_pb2.RobustSettings) -> dict[str, Any]:
    """Return robust settings; 0 where nothing was chosen."""
    return {
        "weight_cap": robust.weight_cap,
        "clip_norm": robust.clip_norm,
        "clip_factor": robust.clip_factor,
        "reducer": robust.reducer,
        "reducer_settings": dict(robust.reducer_settings),
    }
