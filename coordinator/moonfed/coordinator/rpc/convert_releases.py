"""Conversion of releases, deployments and deployed devices."""

from __future__ import annotations

from moonfed.coordinator.deployments.state import Deployment
from moonfed.coordinator.records import DeployedDevice, DeploymentView, ReleaseRecord
from moonfed.models.release_manifest import FLOAT32, MODEL_FILE
from moonfed.transport.client import to_message
from moonfed.v1 import control_pb2

_STATUS = {
    "active": control_pb2.DEPLOYMENT_STATUS_ACTIVE,
    "paused": control_pb2.DEPLOYMENT_STATUS_PAUSED,
    "rolled-back": control_pb2.DEPLOYMENT_STATUS_ROLLED_BACK,
}


def new_deployment(message: control_pb2.DeployReleaseRequest, operator: str) -> Deployment:
    """Convert an operator's request; InvalidInput names a wrong field."""
    return Deployment(
        name=message.name,
        version=message.version,
        variant=message.variant or FLOAT32,
        labels=dict(message.labels),
        trusted_labels=message.trusted_labels,
        percent=message.percent,
        max_drop=message.max_drop,
        operator=operator,
    )


def release(record: ReleaseRecord) -> control_pb2.Release:
    """Convert a release."""
    manifest, evaluation = record.manifest, record.manifest.evaluation
    return control_pb2.Release(
        name=manifest.name,
        version=manifest.version,
        created=record.created,
        operator=record.operator,
        run=manifest.run,
        round=manifest.round,
        manifest=to_message(record.ref),
        signature=to_message(record.signature),
        classes=manifest.classes,
        variants=[
            control_pb2.Variant(name=variant, model=to_message(files[MODEL_FILE]))
            for variant, files in sorted(manifest.variants.items())
        ],
        accuracy=evaluation.accuracy if evaluation else None,
        samples=evaluation.samples if evaluation else 0,
    )


def deployment(view: DeploymentView) -> control_pb2.Deployment:
    """Convert a deployment."""
    found = view.deployment
    return control_pb2.Deployment(
        name=found.name,
        number=found.number,
        version=found.version,
        variant=found.variant,
        labels=dict(found.labels),
        trusted_labels=found.trusted_labels,
        percent=found.percent,
        max_drop=found.max_drop,
        status=_STATUS[found.status],
        created=found.created,
        operator=found.operator,
        matching=view.matching,
        chosen=view.chosen,
        states={str(state): number for state, number in view.states.items()},
        stranded=view.stranded,
    )


def deployed_device(found: DeployedDevice) -> control_pb2.DeployedDevice:
    """Convert a device that a deployment has chosen."""
    choice = found.choice
    return control_pb2.DeployedDevice(
        device=choice.device,
        deployment=choice.deployment,
        target=found.version,
        variant=found.variant,
        state=found.state,
        reason=choice.reason,
        score=choice.score,
        current_score=choice.current_score,
        samples=choice.samples,
        installed=found.installed.version,
        previous=found.installed.previous,
        time=choice.time,
        online=found.online,
    )
