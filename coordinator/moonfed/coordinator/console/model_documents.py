"""Releases, deployments and evaluations as the console's pages take them: JSON values."""

from __future__ import annotations

from typing import Any

from moonfed.held_out_score import HeldOutScore
from moonfed.v1 import control_pb2


def release_document(release: control_pb2.Release) -> dict[str, Any]:
    """Return one version of a released model."""
    return {
        "name": release.name,
        "version": release.version,
        "created": release.created,
        "operator": release.operator,
        "run": release.run,
        "round": release.round,
        "classes": list(release.classes),
        "variants": [{"name": one.name, "bytes": one.model.size} for one in release.variants],
        "accuracy": release.accuracy if release.HasField("accuracy") else None,
        "samples": release.samples,
        "manifest": release.manifest.sha256,
    }


def deployment_document(deployment: control_pb2.Deployment) -> dict[str, Any]:
    """Return a deployment."""
    status = control_pb2.DeploymentStatus.Name(deployment.status).removeprefix("DEPLOYMENT_STATUS_")
    return {
        "name": deployment.name,
        "number": deployment.number,
        "version": deployment.version,
        "variant": deployment.variant,
        "labels": dict(deployment.labels),
        "trusted_labels": deployment.trusted_labels,
        "percent": deployment.percent,
        "max_drop": deployment.max_drop,
        "status": status.lower().replace("_", " "),
        "created": deployment.created,
        "operator": deployment.operator,
        "matching": deployment.matching,
        "chosen": deployment.chosen,
        "states": dict(sorted(deployment.states.items())),
    }


def deployed_device_row(device: control_pb2.DeployedDevice) -> dict[str, Any]:
    """Return a device with its target, and the gate on the device that compared it with the current version."""
    return {
        "device": device.device,
        "online": device.online,
        "deployment": device.deployment,
        "target": device.target,
        "variant": device.variant,
        "state": device.state,
        "reason": device.reason,
        "score": device.score if device.HasField("score") else None,
        "current_score": device.current_score if device.HasField("current_score") else None,
        "samples": device.samples,
        "installed": device.installed,
        "previous": device.previous,
        "time": device.time,
    }


def evaluation_document(evaluation: control_pb2.Evaluation) -> dict[str, Any]:
    """Return the results of one global model on a test set, or on devices."""
    found: dict[str, Any] = {"round": evaluation.round, "test_set": None, "devices": None}
    if evaluation.HasField("test_set"):
        found["test_set"] = score_document(HeldOutScore.from_message(evaluation.test_set))
    else:
        found["devices"] = device_evaluation_document(evaluation.devices)
    return found


def score_document(score: HeldOutScore) -> dict[str, Any]:
    """Return results on a test set, by class and with the confusion matrix if it was recorded."""
    return {
        "name": score.test_set,
        "sha256": score.sha256,
        "samples": score.samples,
        "accuracy": score.accuracy,
        "loss": score.loss,
        "calibration_error": score.calibration_error,
        "classes": [
            {"name": one.name, "precision": one.precision, "recall": one.recall, "support": one.support}
            for one in score.by_class()
        ],
        "confusion": list(score.confusion),
    }


def device_evaluation_document(found: control_pb2.DeviceEvaluation) -> dict[str, Any]:
    """Return an evaluation on devices: its distribution, and who is not in it."""
    summary = found.summary
    return {
        "opened": found.opened,
        "closed": found.closed,
        "summary": {
            "devices": summary.devices,
            "median": summary.median,
            "worst_decile": summary.worst_decile,
            "compared": summary.compared,
            "worse": summary.worse,
        }
        if found.HasField("summary")
        else None,
        "accuracies": [round(one.correct / one.samples, 4) for one in found.scores if one.samples],
        "skipped": [{"reason": group.reason, "devices": len(group.devices)} for group in found.skipped],
        "waiting": len(found.waiting),
    }
