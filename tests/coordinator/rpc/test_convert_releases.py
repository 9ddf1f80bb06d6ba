"""Conversion of releases, deployments and deployed devices."""

from __future__ import annotations

from typing import get_args

import pytest

from moonfed.coordinator.deployments.state import Choice, Status
from moonfed.coordinator.records import DeployedDevice, DeploymentView
from moonfed.coordinator.rpc import convert_releases as convert
from moonfed.errors import InvalidInput
from moonfed.transport.client import from_message
from moonfed.v1 import control_pb2
from tests.support.releases import NAME, deployment, installed, release_record


def test_a_new_deployment_is_the_callers_with_all_that_it_asked_for() -> None:
    request = control_pb2.DeployReleaseRequest(
        name=NAME,
        version=3,
        variant="int8",
        labels={"site": "berlin"},
        trusted_labels=True,
        percent=12.5,
        max_drop=0.5,
    )
    assert convert.new_deployment(request, "ann") == deployment(
        0, 3, variant="int8", labels={"site": "berlin"}, trusted_labels=True, percent=12.5, max_drop=0.5, operator="ann"
    )
    request.variant = ""
    assert convert.new_deployment(request, "ann").variant == "float32"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"percent": 0.0}, "percent is 0.0; it must be a number above 0, up to 100"),
        ({"percent": 101.0}, "percent is 101.0"),
        ({"max_drop": -1.0}, "max-drop is -1.0"),
        ({"version": 0}, "version is 0"),
        ({"name": "../digits"}, r"name is '\.\./digits'"),
        ({"variant": "in/t8"}, "variant is 'in/t8'"),
    ],
)
def test_a_wrong_field_of_a_new_deployment_is_named(fields: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"name": NAME, "version": 1, "percent": 10.0, "max_drop": 1.0}
    with pytest.raises(InvalidInput, match=message):
        convert.new_deployment(control_pb2.DeployReleaseRequest(**(given | fields)), "ann")  # type: ignore[arg-type]


def test_a_release_is_sent_with_its_files_and_its_accuracy_if_it_has_one() -> None:
    record = release_record(3, round=40)
    message = convert.release(record)
    assert (message.name, message.version, message.run, message.round) == (NAME, 3, record.manifest.run, 40)
    assert (message.created, message.operator) == (record.created, "ann")
    assert (from_message(message.manifest), from_message(message.signature)) == (record.ref, record.signature)
    assert list(message.classes) == ["cat", "dog"]
    assert {variant.name: from_message(variant.model) for variant in message.variants} == {
        name: files["model.onnx"] for name, files in record.manifest.variants.items()
    }
    assert (message.accuracy, message.samples) == (0.9, 100)
    unscored = convert.release(release_record(3, evaluation=None))
    assert (unscored.HasField("accuracy"), unscored.samples) == (False, 0)


def test_a_deployment_is_sent_with_its_counts() -> None:
    made = deployment(
        2,
        3,
        variant="int8",
        labels={"site": "berlin"},
        trusted_labels=True,
        percent=12.5,
        max_drop=0.5,
        created=7.0,
        operator="ann",
    )
    view = DeploymentView(deployment=made, matching=50, states={"installed": 4, "declined": 2}, stranded=3)
    message = convert.deployment(view)
    assert message == control_pb2.Deployment(
        name=NAME,
        number=2,
        version=3,
        variant="int8",
        labels={"site": "berlin"},
        trusted_labels=True,
        percent=12.5,
        max_drop=0.5,
        status=control_pb2.DEPLOYMENT_STATUS_ACTIVE,
        created=7.0,
        operator="ann",
        matching=50,
        chosen=6,
        states={"installed": 4, "declined": 2},
        stranded=3,
    )


@pytest.mark.parametrize("status", get_args(Status))
def test_every_status_has_its_own_value(status: Status) -> None:
    view = DeploymentView(deployment=deployment(status=status), matching=0, states={}, stranded=0)
    found = control_pb2.DeploymentStatus.Name(convert.deployment(view).status)
    assert found == f"DEPLOYMENT_STATUS_{status.upper().replace('-', '_')}"


def test_a_device_is_sent_with_its_own_report_and_the_deployments_version() -> None:
    choice = Choice(
        deployment=2,
        device="cam-1",
        state="installed",
        had=True,
        reason="0.25 is too low",
        score=0.25,
        current_score=0.0,
        samples=40,
        fingerprint="f",
        time=7.0,
    )
    found = DeployedDevice(
        choice=choice, version=3, variant="int8", state="superseded", installed=installed(5, previous=4), online=True
    )
    expected = control_pb2.DeployedDevice(
        device="cam-1",
        deployment=2,
        target=3,
        variant="int8",
        state="superseded",
        reason="0.25 is too low",
        score=0.25,
        current_score=0.0,
        samples=40,
        installed=5,
        previous=4,
        time=7.0,
        online=True,
    )
    message = convert.deployed_device(found)
    assert message == expected
    unscored = DeployedDevice(
        choice=Choice(deployment=2, device="cam-1"), version=3, variant="int8", state="pending", installed=installed(0)
    )
    sent = convert.deployed_device(unscored)
    assert (sent.HasField("score"), sent.HasField("current_score"), sent.online) == (False, False, False)
