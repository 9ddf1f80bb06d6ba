"""Releases, deployments and deployed devices as JSON values, which `--json` prints."""

from __future__ import annotations

from typing import Any

from moonfed.formatting import iso_time
from moonfed.v1 import control_pb2


def release_document(release: control_pb2.Release) -> dict[str, Any]:
    """Return a release as JSON values."""
    return {
        "name": release.name,
        "version": release.version,
        "created": iso_time(release.created),
        "operator": release.operator,
        "run": release.run,
        "round": release.round,
        "manifest": {"sha256": release.manifest.sha256, "size": release.manifest.size},
        "signature": {"sha256": release.signature.sha256, "size": release.signature.size},
        "classes": list(release.classes),
        "variants": {
            variant.name: {"sha256": variant.model.sha256, "size": variant.model.size} for variant in release.variants
        },
        "accuracy": release.accuracy if release.HasField("accuracy") else None,
        "samples": release.samples,
    }


def deployment_document(deployment: control_pb2.Deployment) -> dict[str, Any]:
    """Return a deployment as JSON values."""
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
    }


def deployed_device_document(device: control_pb2.DeployedDevice) -> dict[str, Any]:
    """Return a deployed device as JSON values."""
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


def deployment_status(deployment: control_pb2.Deployment) -> str:
    """Return a deployment's status as operators write it."""
    name = control_pb2.DeploymentStatus.Name(deployment.status)
    return name.removeprefix("DEPLOYMENT_STATUS_").lower().replace("_", "-")
