"""Conversion of messages about releases and deployments."""

from __future__ import annotations

from typing import cast

from moonfed.client.convert.times import moment, moment_or_none
from moonfed.client.records.releases import DeployedDevice, Deployment, DeploymentStatus, Release
from moonfed.v1 import control_pb2


def release(message: control_pb2.Release) -> Release:
    """Convert a release."""
    return Release(
        name=message.name,
        version=message.version,
        created=moment(message.created),
        operator=message.operator,
        run=message.run,
        round=message.round,
        accuracy=message.accuracy if message.HasField("accuracy") else None,
        samples=message.samples,
        classes=tuple(message.classes),
        variants={variant.name: variant.model.sha256 for variant in message.variants},
        manifest=message.manifest.sha256,
        signature=message.signature.sha256,
    )


def deployment(message: control_pb2.Deployment) -> Deployment:
    """Convert a deployment."""
    name = control_pb2.DeploymentStatus.Name(message.status).removeprefix("DEPLOYMENT_STATUS_")
    return Deployment(
        name=message.name,
        number=message.number,
        version=message.version,
        variant=message.variant,
        status=cast(DeploymentStatus, name.lower().replace("_", "-")),
        percent=message.percent,
        labels=dict(message.labels),
        trusted_labels=message.trusted_labels,
        max_drop=message.max_drop,
        created=moment(message.created),
        operator=message.operator,
        matching=message.matching,
        chosen=message.chosen,
        states=dict(message.states),
        stranded=message.stranded,
    )


def deployed_device(message: control_pb2.DeployedDevice) -> DeployedDevice:
    """Convert a device's target."""
    return DeployedDevice(
        device=message.device,
        online=message.online,
        deployment=message.deployment,
        version=message.target,
        variant=message.variant,
        state=message.state,
        reason=message.reason,
        score=message.score if message.HasField("score") else None,
        current_score=message.current_score if message.HasField("current_score") else None,
        samples=message.samples,
        installed=message.installed,
        previous=message.previous,
        reported=moment_or_none(message.time),
    )
