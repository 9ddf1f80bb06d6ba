"""Releases, deployments and deployed devices as JSON values. Times are ISO 8601 in UTC."""

from __future__ import annotations

from typing import Any

from moonfed.coordinator.documents.values import blob_document, deployment_status
from moonfed.formatting import iso_time
from moonfed.v1 import control_pb2


def release_document(release: control_pb2.Release) -> dict[str, Any]:
    """Return a release."""
    return {
        "name": release.name,
        "version": release.version,
        "created": iso_time(release.created),
        "operator": release.operator,
        "run": release.run,
        "round": release.round,
        "manifest": blob_document(release.manifest),
        "signature": blob_document(release.signature),
        "classes": list(release.classes),
        "variants": {variant.name: blob_document(variant.model) for variant in release.variants},
        "accuracy": release.accuracy if release.HasField("accuracy") else None,
        "samples": release.samples,
    }


def deployment_document(deployment: control_pb2.Deployment) -> dict[str, Any]:
    """Return a deployment."""
    return {
        "name": deployment.name,
        "deployment": deployment.number,
        "version": deployment.version,
        "variant": deployment.variant,
        "labels": dict(deployment.labels),
        "trusted_labels": deployment.trusted_labels,
        "percent": deployment.percent,
        "max_drop": deployment.max_drop,
        "status": deployment_status(deployment),
        "created": iso_time(deployment.created),
        "operator": deployment.operator,
        "matching": deployment.matching,
        "chosen": deployment.chosen,
        "states": dict(sorted(deployment.states.items())),
        "stranded": deployment.stranded,
    }


def deployed_device_document(device: control_pb2.DeployedDevice) -> dict[str, Any]:
    """Return a device with its target, and the gate on it that compared that with its current version."""
    return {
        "device": device.device,
        "online": device.online,
        "deployment": device.deployment,
        "version": device.target,
        "variant": device.variant,
        "state": device.state,
        "reason": device.reason,
        "score": device.score if device.HasField("score") else None,
        "current_score": device.current_score if device.HasField("current_score") else None,
        "samples": device.samples,
        "installed": device.installed,
        "previous": device.previous,
        "reported": iso_time(device.time),
    }
