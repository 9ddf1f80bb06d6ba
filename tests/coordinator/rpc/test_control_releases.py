"""Releases and deployments over the real wire: created by engineers, deployed by operators, installed by devices."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.errors import AlreadyExists, InvalidInput, MoonfedError, NotFound, UntrustedRelease, WrongState
from moonfed.models.release_manifest import WEIGHTS_FILE
from moonfed.signing.statement import RELEASE
from moonfed.transport.client import to_message
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import Device, ask, make_bundle, model_bytes
from tests.support.operators import audit_records
from tests.support.release_fleet import (
    Signed,
    create,
    deploy,
    deployed_devices,
    fetch,
    signed_release,
    states,
    stopped_run,
)
from tests.support.releases import NAME, ref
from tests.support.signatures import signature

BUNDLE = make_bundle()


@pytest.fixture
def calls(fleet: Fleet) -> Fleet:
    """A fleet with a run that has ended."""
    fleet.start("run", bundle=BUNDLE)
    stopped_run(fleet.operator, "run")
    return fleet


def report(device: Device, target: fleet_pb2.TargetRelease, outcome: int, has: int = 0, **fields: Any) -> None:
    installed = fleet_pb2.InstalledRelease(name=NAME, version=has, variant="float32" if has else "")
    request = fleet_pb2.ReportReleaseRequest(
        device=device.name,
        name=NAME,
        deployment=target.deployment,
        version=target.version,
        outcome=fleet_pb2.ReleaseOutcome.ValueType(outcome),
        installed=installed,
        **fields,
    )
    ask(device.fleet.ReportRelease, request)


def test_a_release_reaches_a_device_that_reports_what_became_of_it(
    calls: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    created = create(calls.operator, signed_release("run", BUNDLE))
    assert (created.name, created.version, created.run, created.round) == (NAME, 1, "run", 0)
    assert sorted(created.variants) == ["float32", "int8"]
    assert (created.score, created.samples, created.operator) == (0.9, 100, "operator")

    device = calls.device("cam-1")
    session = device.connect(fingerprint="f")
    assert deploy(calls.operator, 1).chosen == 1
    target = session.target()
    assert (target.name, target.version, target.variant, target.roll_back) == (NAME, 1, "float32", False)
    assert ref_of_bytes(fetch(device, target.manifest)).sha256 == target.manifest.sha256
    assert fetch(device, target.signature)
    assert states(calls.operator) == {"pending": 1}

    report(device, target, fleet_pb2.RELEASE_OUTCOME_ACCEPTED, score=0.8, samples=40)
    assert states(calls.operator) == {"accepted": 1}
    report(device, target, fleet_pb2.RELEASE_OUTCOME_INSTALLED, 1)
    (found,) = deployed_devices(calls.operator)
    assert (found.device, found.state, found.installed, found.online) == ("cam-1", "installed", 1, True)

    ask(calls.operator.control.RollBackDeployment, control_pb2.RollBackDeploymentRequest(name=NAME))
    removal = session.target()
    assert (removal.version, removal.deployment) == (0, 1)
    report(device, removal, fleet_pb2.RELEASE_OUTCOME_INSTALLED)
    assert states(calls.operator, 1) == {"returned": 1}
    logged = [record.getMessage() for record in caplog.records if record.getMessage().startswith("release 'digits'")]
    assert logged == [
        "release 'digits': version 1 on cam-1: accepted",
        "release 'digits': version 1 on cam-1: installed",
        "release 'digits': removal on cam-1: done",
    ]


def test_a_device_may_fetch_the_files_of_its_releases_only(calls: Fleet) -> None:
    for version in (1, 2):
        create(calls.operator, signed_release("run", BUNDLE, version))
    device, other = calls.device("cam-1"), calls.device("cam-2")
    for one in (device, other):
        one.connect()
    calls.operator.devices()
    deploy(calls.operator, 1, percent=50)
    (chosen,) = (found.device for found in deployed_devices(calls.operator))
    allowed, denied = (device, other) if chosen == "cam-1" else (other, device)
    first, second = (signed_release("run", BUNDLE, version).manifest for version in (1, 2))
    model = first.variants["float32"]["model.onnx"]
    assert ref_of_bytes(fetch(allowed, _blob(model))) == model
    for asking, wanted in ((denied, model), (allowed, second.variants["float32"]["model.onnx"])):
        with pytest.raises(NotFound, match="and to no release deployed to it"):
            fetch(asking, _blob(wanted))


def _blob(wanted: BlobRef) -> blob_pb2.Blob:
    return to_message(wanted)


def test_a_target_waits_for_a_device_that_is_offline_and_is_not_repeated_to_one_that_has_it(calls: Fleet) -> None:
    create(calls.operator, signed_release("run", BUNDLE))
    device = calls.device("cam-1")
    device.connect().leave()
    deploy(calls.operator, 1)
    target = device.connect().target()
    held = fleet_pb2.InstalledRelease(name=NAME, version=1, variant="float32", deployment=target.deployment)
    session = device.connect(installed=[held])
    create(calls.operator, signed_release("run", BUNDLE, 2))
    deploy(calls.operator, 2)
    assert session.target().version == 2
    assert states(calls.operator, 1) == {"superseded": 1}


def test_a_declined_target_comes_again_only_with_another_fingerprint(calls: Fleet) -> None:
    create(calls.operator, signed_release("run", BUNDLE))
    device = calls.device("cam-1")
    session = device.connect(fingerprint="f")
    deploy(calls.operator, 1)
    report(device, session.target(), fleet_pb2.RELEASE_OUTCOME_DECLINED, reason="classes differ", fingerprint="f")
    (found,) = deployed_devices(calls.operator)
    assert (found.state, found.reason, found.installed) == ("declined", "classes differ", 0)
    device.connect(fingerprint="f")
    assert device.connect(fingerprint="g").target().version == 1
    assert states(calls.operator) == {"pending": 1}


def changed(release: Signed, **fields: object) -> Signed:
    """Return the release with other fields, signed again."""
    manifest = replace(release.manifest, **fields)  # type: ignore[arg-type]
    content = manifest.to_bytes()
    made = signature(content, name=manifest.name, version=manifest.version, kind=RELEASE).to_bytes()
    extra = {ref_of_bytes(content): content, ref_of_bytes(made): made}
    return Signed(manifest, ref_of_bytes(made), {**release.contents, **extra})


def test_releases_that_do_not_fit_are_rejected_by_name(calls: Fleet) -> None:
    good = signed_release("run", BUNDLE)
    bundled = signature(good.manifest.to_bytes(), name=NAME).to_bytes()
    as_bundle = replace(
        good, signature=ref_of_bytes(bundled), contents={**good.contents, ref_of_bytes(bundled): bundled}
    )
    other = signature(good.manifest.to_bytes(), name=NAME, version=2, kind=RELEASE).to_bytes()
    as_other = replace(good, signature=ref_of_bytes(other), contents={**good.contents, ref_of_bytes(other): other})
    stranger = {**good.manifest.plan, WEIGHTS_FILE: ref_of_bytes(model_bytes(5.0))}
    foreign = changed(good, plan=stranger)
    foreign = replace(foreign, contents={**foreign.contents, stranger[WEIGHTS_FILE]: model_bytes(5.0)})
    missing = changed(good, plan={**good.manifest.plan, WEIGHTS_FILE: ref("never uploaded")})
    cases: list[tuple[Signed, type[MoonfedError], str]] = [
        (as_bundle, UntrustedRelease, "vnd.moonfed.bundle"),
        (as_other, UntrustedRelease, "version 1 of 'digits', but signed as version 2"),
        (foreign, InvalidInput, "weights of the release are"),
        (missing, NotFound, "was not uploaded"),
        (changed(good, run="none"), NotFound, "there is no run 'none'"),
        (changed(good, round=3), NotFound, "global model of round 3"),
        (changed(good, version=2), AlreadyExists, "version is 2; it must be 1, the next of release 'digits'"),
    ]
    for release, error, reason in cases:
        with pytest.raises(error, match=reason):
            create(calls.operator, release)
    assert ask(calls.operator.control.ListReleases, control_pb2.ListReleasesRequest()).releases == []
    create(calls.operator, good)


def test_a_release_is_made_of_a_run_that_has_ended(fleet: Fleet) -> None:
    fleet.start("run", bundle=BUNDLE)
    with pytest.raises(WrongState, match="run 'run' is running; a release needs a run that has ended"):
        create(fleet.operator, signed_release("run", BUNDLE))


def test_a_release_outlives_its_run(calls: Fleet) -> None:
    create(calls.operator, signed_release("run", BUNDLE))
    ask(calls.operator.control.DeleteRun, control_pb2.DeleteRunRequest(run="run"))
    device = calls.device("cam-1")
    session = device.connect()
    deploy(calls.operator, 1)
    manifest = signed_release("run", BUNDLE).manifest
    session.target()
    for blob in manifest.blobs:
        assert ref_of_bytes(fetch(device, _blob(blob))) == blob


def test_every_change_is_in_the_audit_trail(calls: Fleet) -> None:
    control = calls.operator.control
    create(calls.operator, signed_release("run", BUNDLE))
    deploy(calls.operator, 1, percent=10, labels={"site": "berlin"})
    requests: list[tuple[Callable[..., Any], Any]] = [
        (control.WidenDeployment, control_pb2.WidenDeploymentRequest(name=NAME, percent=50, allow_empty=True)),
        (control.PauseDeployment, control_pb2.PauseDeploymentRequest(name=NAME)),
        (control.ResumeDeployment, control_pb2.ResumeDeploymentRequest(name=NAME)),
        (control.RollBackDeployment, control_pb2.RollBackDeploymentRequest(name=NAME)),
    ]
    for call, request in requests:
        ask(call, request)
    found = [record.details for record in audit_records(calls.operator) if "release" in record.details]
    assert found[0].startswith("create version 1 of release 'digits' from round 0 of run 'run', manifest ")
    assert found[1:] == [
        "deploy version 1 of release 'digits' to 10 % of the devices with 'site=berlin': deployment 1, 0 devices",
        "widen the deployment of release 'digits' to 50 %: deployment 1 of version 1, 0 devices",
        "pause release 'digits': deployment 1 of version 1",
        "resume release 'digits': deployment 1 of version 1",
        "roll back release 'digits': withdrew deployment 1 of version 1, 0 devices",
    ]


def test_a_report_on_a_deployment_that_did_not_choose_the_device_is_rejected(calls: Fleet) -> None:
    create(calls.operator, signed_release("run", BUNDLE))
    device = calls.device("cam-1")
    device.connect()
    target = fleet_pb2.TargetRelease(name=NAME, deployment=7, version=1)
    with pytest.raises(NotFound, match="no deployment 7 of 'digits' has chosen device 'cam-1'"):
        report(device, target, fleet_pb2.RELEASE_OUTCOME_INSTALLED, 1)
    with pytest.raises(InvalidInput, match="outcome is 0; it must be from 1 to 5"):
        report(device, target, fleet_pb2.RELEASE_OUTCOME_UNSPECIFIED)
    inventory = [fleet_pb2.InstalledRelease(name=f"r{number}", version=1, variant="float32") for number in range(65)]
    with pytest.raises(InvalidInput, match="installed has 65 releases; it must be at most 64"):
        device.connect(installed=inventory)
