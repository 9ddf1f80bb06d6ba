"""Releases, deployments and deployed devices as JSON."""

from __future__ import annotations

import json

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.documents.releases import (
    deployed_device_document,
    deployment_document,
    release_document,
)
from moonfed.transport.client import to_message
from moonfed.v1 import control_pb2

MANIFEST, SIGNATURE, MODEL = (ref_of_bytes(content) for content in (b"manifest", b"signature!", b"model"))


def test_a_release_names_its_run_its_files_and_its_accuracy() -> None:
    release = control_pb2.Release(
        name="digits",
        version=3,
        created=1_700_000_000.5,
        operator="ann",
        run="digits-run",
        round=40,
        manifest=to_message(MANIFEST),
        signature=to_message(SIGNATURE),
        classes=["cat", "dog"],
        variants=[control_pb2.Variant(name=name, model=to_message(MODEL)) for name in ("float32", "int8")],
        accuracy=0.0,
        samples=12,
    )
    expected = {
        "name": "digits",
        "version": 3,
        "created": "2023-11-14T22:13:20Z",
        "operator": "ann",
        "run": "digits-run",
        "round": 40,
        "manifest": {"sha256": MANIFEST.sha256, "size": 8},
        "signature": {"sha256": SIGNATURE.sha256, "size": 10},
        "classes": ["cat", "dog"],
        "variants": {name: {"sha256": MODEL.sha256, "size": 5} for name in ("float32", "int8")},
        "accuracy": 0.0,  # measured, unlike a missing one
        "samples": 12,
    }
    assert release_document(release) == expected
    release.ClearField("accuracy")
    assert release_document(release) == {**expected, "accuracy": None}


def test_a_deployment_has_its_selection_and_its_states_by_name() -> None:
    deployment = control_pb2.Deployment(
        name="digits",
        number=2,
        version=3,
        variant="int8",
        labels={"site": "berlin"},
        trusted_labels=True,
        percent=12.5,
        max_drop=0.5,
        status=control_pb2.DEPLOYMENT_STATUS_ROLLED_BACK,
        created=1_700_000_000,
        operator="ann",
        matching=50,
        chosen=6,
        states={"returned": 4, "declined": 2},
        stranded=3,
    )
    document = deployment_document(deployment)
    assert document == {
        "name": "digits",
        "deployment": 2,
        "version": 3,
        "variant": "int8",
        "labels": {"site": "berlin"},
        "trusted_labels": True,
        "percent": 12.5,
        "max_drop": 0.5,
        "status": "rolled-back",
        "created": "2023-11-14T22:13:20Z",
        "operator": "ann",
        "matching": 50,
        "chosen": 6,
        "states": {"declined": 2, "returned": 4},
        "stranded": 3,
    }
    assert list(document["states"]) == ["declined", "returned"]
    assert json.loads(json.dumps(document)) == document


def test_a_device_has_its_target_what_it_answers_with_and_its_scores() -> None:
    device = control_pb2.DeployedDevice(
        device="cam-1",
        online=True,
        deployment=2,
        target=3,
        variant="float32",
        state="declined",
        reason="0.25 is too low",
        score=0.25,
        current_score=0.0,
        samples=40,
        installed=2,
        previous=1,
        time=1_700_000_000,
    )
    expected = {
        "device": "cam-1",
        "online": True,
        "deployment": 2,
        "version": 3,
        "variant": "float32",
        "state": "declined",
        "reason": "0.25 is too low",
        "score": 0.25,
        "current_score": 0.0,
        "samples": 40,
        "installed": 2,
        "previous": 1,
        "reported": "2023-11-14T22:13:20Z",
    }
    assert deployed_device_document(device) == expected
    device.ClearField("score")
    device.ClearField("current_score")
    device.time = 0  # it has not reported
    unreported = {**expected, "score": None, "current_score": None, "reported": None}
    assert deployed_device_document(device) == unreported
