"""Releases, deployments and evaluations as JSON values."""

from __future__ import annotations

from moonfed.coordinator.console.model_documents import (
    deployed_device_row,
    deployment_document,
    evaluation_document,
    release_document,
)
from moonfed.v1 import blob_pb2, control_pb2
from tests.proto.test_held_out_score import SCORE


def test_a_release_with_and_without_an_evaluation() -> None:
    release = control_pb2.Release(
        name="d", version=2, variants=[control_pb2.Variant(name="float32", model=blob_pb2.Blob(size=7))]
    )
    assert release_document(release)["accuracy"] is None
    assert release_document(release)["variants"] == [{"name": "float32", "bytes": 7}]
    release.accuracy = 0.0
    assert release_document(release)["accuracy"] == 0.0


def test_a_deployment_and_its_devices() -> None:
    deployment = control_pb2.Deployment(
        name="d", number=3, status=control_pb2.DEPLOYMENT_STATUS_ROLLED_BACK, states={"returned": 2, "declined": 1}
    )
    found = deployment_document(deployment)
    assert (found["status"], found["states"]) == ("rolled back", {"declined": 1, "returned": 2})
    device = control_pb2.DeployedDevice(device="a", state="declined", score=0.5, reason="worse")
    row = deployed_device_row(device)
    assert (row["score"], row["current_score"], row["reason"]) == (0.5, None, "worse")


def test_evaluations_on_a_test_set_and_on_devices() -> None:
    found = evaluation_document(control_pb2.Evaluation(round=4, test_set=SCORE.to_message()))
    assert found["test_set"]["name"] == SCORE.test_set
    assert found["test_set"]["confusion"] == list(SCORE.confusion)
    assert [one["name"] for one in found["test_set"]["classes"]] == list(SCORE.classes)
    on_devices = control_pb2.DeviceEvaluation(
        scores=[control_pb2.DeviceScore(device="a", samples=4, correct=3), control_pb2.DeviceScore(device="b")],
        skipped=[control_pb2.SkippedDevices(reason="no holdout", devices=["c", "d"])],
        waiting=["e"],
    )
    found = evaluation_document(control_pb2.Evaluation(round=4, devices=on_devices))
    assert found["devices"]["summary"] is None
    assert found["devices"]["accuracies"] == [0.75]
    assert found["devices"]["skipped"] == [{"reason": "no holdout", "devices": 2}]
