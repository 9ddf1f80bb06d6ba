"""Single values of JSON documents: words for enumerations, amounts, blobs and metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from moonfed.v1 import blob_pb2, control_pb2


def run_status(run: control_pb2.Run) -> str:
    """Return a run's status as one word."""
    return control_pb2.RunStatus.Name(run.status).removeprefix("RUN_STATUS_").lower()


def round_status(round_: control_pb2.Round | control_pb2.RoundOutcomes) -> str:
    """Return a round's status as one word."""
    return control_pb2.RoundStatus.Name(round_.status).removeprefix("ROUND_STATUS_").lower()


def event_name(event: control_pb2.RunEvent) -> str:
    """Return an event's kind as one word."""
    return control_pb2.EventKind.Name(event.kind).removeprefix("EVENT_KIND_").lower()


def deployment_status(deployment: control_pb2.Deployment) -> str:
    """Return a deployment's status as operators write it."""
    name = control_pb2.DeploymentStatus.Name(deployment.status)
    return name.removeprefix("DEPLOYMENT_STATUS_").lower().replace("_", "-")


def blob_document(blob: blob_pb2.Blob) -> dict[str, Any]:
    """Return a blob's digest and size."""
    return {"sha256": blob.sha256, "size": blob.size}


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers by name, sorted, with None in place of what JSON has no number for."""
    return {name: value if math.isfinite(value) else None for name, value in sorted(values.items())}
