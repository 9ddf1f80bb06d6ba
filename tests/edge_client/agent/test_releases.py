"""Target releases on a real device: installed, declined, resumed, postponed, rolled back and removed."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.edge_client.agent.releases import ReleaseInstaller, _drop
from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.edge_client.worker.messages import SampleCounts
from moonfed.errors import InvalidInput
from moonfed.fleet.messages import read_target
from moonfed.v1 import fleet_pb2
from tests.edge_client.conftest import Bundle, Device
from tests.edge_client.state.test_releases import whole
from tests.faults.kills import kills
from tests.support.device_coordinator import Coordinator
from tests.support.device_releases import SignedRelease, classifier, make_release, with_wrong_operator
from tests.support.forked_process import PATCHES
from tests.support.gates import until

pytestmark = pytest.mark.slow

GOOD, BAD = classifier(), classifier(good=False)
PICTURES = InputSpec(kind="image", shape=(24, 24, 3))


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Classes that a good classifier tells apart without an error."""
    generator, labels = np.random.default_rng(0), np.arange(40) % 3
    inputs = generator.normal(size=(40, 6)) / 10 + 3 * np.eye(6)[labels]
    np.savez(tmp_path / "samples.npz", inputs=inputs.astype(np.float32), labels=labels)
    return tmp_path / "samples.npz"


@pytest.fixture
def deploy(coordinator: Coordinator) -> Callable[..., SignedRelease]:
    """Make a release and send it as the device's target; `fields`: the target's."""

    def send(version: int, deployment: int, *, fields: dict[str, Any] | None = None, **made: Any) -> SignedRelease:
        release = make_release(version, **made).put_into(coordinator.blobs)
        coordinator.assign(release.target(deployment, **(fields or {})))
        return release

    return send


def store(device: Device) -> ReleaseStore:
    return ReleaseStore(device.state)


def test_a_target_is_installed_and_named_when_the_device_connects_again(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease]
) -> None:
    release = deploy(1, 4)
    device.start(samples, "--holdout", "0.5")
    accepted, installed = coordinator.wait_for_outcome("accepted"), coordinator.wait_for_outcome("installed")
    assert (accepted.deployment, accepted.version, accepted.score, accepted.samples) == (4, 1, 1.0, 20)
    assert not accepted.HasField("current_score")
    assert accepted.installed.version == 0
    assert (installed.installed.version, installed.installed.variant, installed.score) == (1, "float32", 1.0)
    assert store(device).open("digits", 1).manifest == release.manifest
    fetched = {sha256 for sha256, _ in coordinator.fetched}
    assert not fetched & {ref.sha256 for ref in release.manifest.plan.values()}  # ONNX Runtime is installed
    device.wait_for_log("version 1 of model digits: installed")
    until(lambda: not any(files for _, _, files in os.walk(device.state / "release-blobs")))
    device.stop()
    device.start(samples)
    coordinator.wait_for(lambda: len(coordinator.connect_requests) > 1, "the device")
    (known,) = coordinator.connect_requests[-1].installed
    assert (known.name, known.version, known.variant, known.deployment) == ("digits", 1, "float32", 4)
    coordinator.wait_for_outcome("installed", 2)  # the target was sent again
    assert len({sha256 for sha256, _ in coordinator.fetched}) == len(fetched)


def test_a_version_that_is_worse_on_the_holdout_is_declined(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease]
) -> None:
    device.start(samples, "--holdout", "0.5")
    deploy(1, 1)
    coordinator.wait_for_outcome("installed")
    deploy(2, 2, model=BAD)
    declined = coordinator.wait_for_outcome("declined")
    correct = round(20 * declined.score)
    lost = 20 - correct  # the first version finds all samples
    assert declined.reason == (
        f"accuracy {correct / 20:.4g} on 20 samples held out here, the current version 1: {lost} lost, "
        f"0 gained, p = {0.5**lost:.2g} (below 0.05), and {5 * lost:.1f} points are more than max-drop, 1"
    )
    assert (declined.current_score, declined.samples, declined.installed.version) == (1.0, 20, 1)
    assert store(device).current("digits") == 1
    assert not (device.state / "repository" / "digits" / "2").exists()
    deploy(3, 3, model=BAD, fields={"max_drop": 100.0})
    assert coordinator.wait_for_outcome("installed", 2).installed.previous == 1
    assert store(device).current("digits") == 3


def test_scores_of_a_version_whose_run_has_privacy_stay_on_the_device(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease]
) -> None:
    device.start(samples, "--holdout", "0.5")
    deploy(1, 1)
    coordinator.wait_for_outcome("installed")
    deploy(2, 2, private=True)
    installed = coordinator.wait_for_outcome("installed", 2)
    deploy(3, 3, model=BAD, private=True)
    declined = coordinator.wait_for_outcome("declined")
    for report in (installed, declined):
        assert not report.HasField("score")
        assert not report.HasField("current_score")
        assert report.samples == 0
        assert not re.search("[0-9]", report.reason)
    device.wait_for_log("not reported: accuracy")


def test_without_a_holdout_nothing_is_compared(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease]
) -> None:
    device.start(samples)
    deploy(1, 1)
    coordinator.wait_for_outcome("installed")
    deploy(2, 2, model=BAD)
    installed = coordinator.wait_for_outcome("installed", 2)
    assert (installed.installed.version, installed.installed.previous, installed.samples) == (2, 1, 0)
    assert not installed.HasField("score")


def test_a_device_without_data_installs_what_runs_and_says_that_it_did_not_compare(
    coordinator: Coordinator, device: Device, deploy: Callable[..., SignedRelease]
) -> None:
    deploy(1, 1)
    device.start(None)
    coordinator.wait_for_outcome("installed")
    deploy(2, 2, model=BAD)
    installed = coordinator.wait_for_outcome("installed", 2)
    assert (installed.installed.version, installed.samples) == (2, 0)
    assert installed.reason == "not compared, because this device has no data"
    assert not installed.HasField("score")
    deploy(3, 3, model=b"no ONNX file")
    assert coordinator.wait_for_outcome("failed").version == 3
    assert store(device).current("digits") == 2


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"keys": (9,)}, "which is not trusted"),
        ({"expires": 1}, "the release's signature expired on 1970-01-01 00:00 UTC"),
        ({"signed_as": ("other", 1)}, "but signed as version 1 of 'other'"),
        ({"spec": PICTURES}, "inputs of PATH have dtype float32; the model takes uint8"),
        ({"classes": ("left", "right")}, "labels of .* range from 0 to 2; the model has 2 classes"),
        ({"name": "digits", "config": "version_policy { latest { } }"}, "has a version_policy"),
        ({"fields": {"variant": "int8"}}, "variant is 'int8'; it must be one of float32"),
    ],
)
def test_an_unsuitable_release_is_declined_with_the_reason(
    made: dict[str, Any],
    reason: str,
    coordinator: Coordinator,
    device: Device,
    samples: Path,
    deploy: Callable[..., SignedRelease],
) -> None:
    deploy(1, 3, **made)
    device.start(samples)
    declined = coordinator.wait_for_outcome("declined")
    assert re.search(reason, declined.reason), declined.reason
    assert str(samples) not in declined.reason
    assert (declined.deployment, declined.version, declined.installed.version) == (3, 1, 0)
    assert store(device).names() == []


@pytest.mark.parametrize(("name", "version"), [("digits", 2), ("letters", 1)])
def test_a_signed_release_that_is_passed_off_as_another_one_is_declined(
    name: str, version: int, coordinator: Coordinator, device: Device, samples: Path
) -> None:
    target = make_release(1).put_into(coordinator.blobs).target(3)
    target.name, target.version = name, version
    coordinator.assign(target)
    device.start(samples)
    declined = coordinator.wait_for_outcome("declined")
    assert declined.reason == f"the coordinator sent version 1 of 'digits' as version {version} of {name!r}"
    assert store(device).names() == []


def test_a_version_that_is_installed_is_not_replaced_by_another_of_that_number(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease]
) -> None:
    device.start(samples)
    deploy(1, 1)
    coordinator.wait_for_outcome("installed")
    for number, made in ((2, {"model": BAD}), (3, {"variants": {"int8": BAD}, "fields": {"variant": "int8"}})):
        deploy(1, number, **made)
        declined = coordinator.wait_for_outcome("declined", number - 1)
        assert declined.deployment == number
        assert "here as variant float32" in declined.reason
    assert whole(device.state) == 1
    assert store(device).installed("digits").variant == "float32"


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_device_that_declined_a_version_connects_again_when_its_data_change(
    restarted: bool,
    coordinator: Coordinator,
    device: Device,
    samples: Path,
    deploy: Callable[..., SignedRelease],
    forked_programs: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.hasty_looks")
    device.start(samples, "--holdout", "0.5")
    deploy(1, 1)
    coordinator.wait_for_outcome("installed")
    deploy(2, 2, model=BAD)
    declined = coordinator.wait_for_outcome("declined")
    if restarted:
        device.stop()
        coordinator.assignments.clear()  # it is not sent the version again
        device.start(samples, "--holdout", "0.5")
        coordinator.wait_for(lambda: len(coordinator.connect_requests) > 1, "the device")
    sessions = len(coordinator.connect_requests)
    with np.load(samples) as content:
        np.savez(samples, inputs=content["inputs"][:-1], labels=content["labels"][:-1])
    coordinator.wait_for(lambda: len(coordinator.connect_requests) > sessions, "the device")
    assert coordinator.connect_requests[-1].fingerprint != declined.fingerprint


@pytest.mark.parametrize(
    ("changed", "gained", "max_drop", "reason"),
    [
        ("", 1, 1.0, ""),
        ("0", 0, 1.0, "the current version 0.9677: 1 lost, 0 gained, p = 0.5"),
        ("0123", 0, 0.0, "the current version 0.9677: 4 lost, 0 gained, p = 0.062"),
        ("01234", 0, 1.0, "worse"),
        ("01234", 1, 1.0, "the current version 0.9677: 5 lost, 1 gained, p = 0.11"),
        ("01234", 0, 20.0, "the current version 0.9677: 5 lost, 0 gained, p = 0.031"),
    ],
    ids=["better", "one", "four", "five", "five-against-one", "tolerated"],
)
def test_a_version_is_declined_only_for_a_drop_that_is_significant_and_too_large(
    changed: str, gained: int, max_drop: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 of 31 samples are found by the current version; `changed` names those that the new one loses."""
    before = [0.0] * 30 + [1.0]
    errors = [float(str(sample) in list(changed)) for sample in range(30)] + [1.0 - gained]
    monkeypatch.setattr(ReleaseInstaller, "_try", lambda *_: errors)
    monkeypatch.setattr(ReleaseInstaller, "_score_current", lambda *_: before)
    installer, counts = ReleaseInstaller.__new__(ReleaseInstaller), SampleCounts(samples=31, held_out=31, version=1)
    target = read_target(make_release(2).target(2, max_drop=max_drop))
    nothing: Any = None
    model: Any = SimpleNamespace(target=class_target(2))
    with pytest.raises(InvalidInput, match="more than max-drop, 1") if reason == "worse" else nullcontext():
        found = installer._compare(target, model, nothing, counts)
        assert found
        assert found.score == pytest.approx((30 + gained - len(changed)) / 31)
        assert _drop(found).endswith(reason)
        assert bool(_drop(found)) == bool(reason)


def test_a_version_to_which_a_device_is_rolled_back_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReleaseInstaller, "_try", lambda *_: [0.0] * 20)
    monkeypatch.setattr(ReleaseInstaller, "_score_current", lambda *_: [1.0] * 20)
    installer, counts = ReleaseInstaller.__new__(ReleaseInstaller), SampleCounts(samples=20, held_out=20, version=1)
    target = read_target(make_release(1).target(2, roll_back=True))
    nothing: Any = None
    assert installer._compare(target, nothing, nothing, counts) is None


@pytest.mark.parametrize(
    ("model", "reason"),
    [(GOOD[:-40], "the model does not work on this device: "), (with_wrong_operator(GOOD), "Hardmin")],
    ids=["truncated", "wrong operator"],
)
def test_a_version_that_fails_to_load_leaves_the_one_before(
    model: bytes,
    reason: str,
    coordinator: Coordinator,
    device: Device,
    samples: Path,
    deploy: Callable[..., SignedRelease],
) -> None:
    device.start(samples)
    deploy(1, 1)
    coordinator.wait_for_outcome("installed")
    deploy(2, 2, model=model)
    failed = coordinator.wait_for_outcome("failed")
    assert reason in failed.reason
    assert (failed.installed.version, failed.version) == (1, 2)
    assert store(device).current("digits") == 1


def test_a_version_that_is_found_damaged_gives_way_to_the_one_before(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease]
) -> None:
    device.start(samples)
    for version in (1, 2):
        deploy(version, version + 4, model=classifier(seed=version))
        coordinator.wait_for_outcome("installed", version)
    device.stop()
    coordinator.assignments.clear()
    model = device.state / "repository" / "digits" / "2" / "model.onnx"
    model.unlink()
    model.write_bytes(b"damaged")
    device.start(samples)
    coordinator.wait_for(lambda: len(coordinator.connect_requests) > 1, "the device")
    found = coordinator.wait_for_outcome("fell-back")
    assert (found.deployment, found.version, found.installed.version, found.installed.previous) == (6, 2, 1, 0)
    assert found.reason.startswith("PATH differs")
    assert coordinator.connect_requests[-1].installed[0].version == 1


def test_a_roll_back_to_the_retained_version_fetches_no_model(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease]
) -> None:
    device.start(samples, "--holdout", "0.5")
    first = deploy(1, 1, model=BAD)
    coordinator.wait_for_outcome("installed")
    deploy(2, 2)
    coordinator.wait_for_outcome("installed", 2)
    fetched = len(coordinator.fetched)
    coordinator.assign(first.target(3, roll_back=True))
    found = coordinator.wait_for_outcome("installed", 3)
    assert (found.deployment, found.installed.version, found.installed.previous) == (3, 1, 2)
    assert store(device).current("digits") == 1
    assert {sha256 for sha256, _ in coordinator.fetched[fetched:]} == {
        first.target().manifest.sha256,
        first.target().signature.sha256,
    }
    coordinator.assign(fleet_pb2.TargetRelease(name="digits", deployment=4))
    assert coordinator.wait_for_outcome("installed", 4).installed.version == 0
    device.wait_for_log("removal of model digits: done")
    assert store(device).names() == []


def test_runs_never_change_what_a_device_answers_with(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, deploy: Callable[..., SignedRelease]
) -> None:
    device.start(samples)
    deploy(1, 1)
    coordinator.wait_for_outcome("installed")
    coordinator.assign(bundle.assignment())
    coordinator.wait_for_update()
    coordinator.assign(fleet_pb2.RunEnded(run="tested"))
    device.wait_for_log("run tested has ended")
    assert store(device).names() == ["digits"]
    assert store(device).current("digits") == 1


def test_an_interrupted_transfer_resumes_after_a_restart(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease], hasty_programs: None
) -> None:
    """Two devices' worth of connections: the second one continues where the first one was killed."""
    large = classifier(InputSpec(kind="features", shape=(6,)), 3, seed=1) + _padding(3_000_000)
    release = make_release(1, model=large).put_into(coordinator.blobs)
    sha256 = release.manifest.files("float32")["model.onnx"].sha256
    coordinator.assign(release.target())
    device.start(samples, "--max-bandwidth", "300KB")
    part = device.state / "release-blobs" / "incoming" / sha256
    coordinator.wait_for(lambda: (sha256, 0) in coordinator.fetched, "the transfer")
    until(lambda: part.exists() and part.stat().st_size > 100_000)
    device.stop(signal.SIGKILL)
    received = part.stat().st_size
    assert received < 2_000_000
    device.start(samples)
    coordinator.wait_for_outcome("installed")
    (resumed,) = (offset for name, offset in coordinator.fetched if name == sha256 and offset)
    assert resumed == received


@pytest.mark.timeout(120 + 20 * kills(4))
def test_a_device_that_is_killed_again_and_again_answers_with_a_whole_version_and_continues(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease], hasty_programs: None
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    device.start(samples, "--holdout", "0.5")
    for version in range(1, kills(4) + 1):
        deploy(version, version, model=classifier(seed=version))
        time.sleep(chance.uniform(0.0, 3.0))  # anywhere from the target's arrival to the report
        device.stop(signal.SIGKILL)
        assert whole(device.state) in (version - 1, version)
        device.start(samples, "--holdout", "0.5")
        while max((report.installed.version for report in coordinator.outcomes), default=0) < version:
            time.sleep(0.01)
        assert whole(device.state) == version


def test_rounds_go_before_the_transfer_of_a_release(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, hasty_programs: None
) -> None:
    large = classifier() + _padding(1_500_000)
    release = make_release(1, model=large).put_into(coordinator.blobs)
    sha256 = release.manifest.files("float32")["model.onnx"].sha256
    coordinator.assign(release.target())
    device.start(samples, "--max-bandwidth", "600KB")
    coordinator.wait_for(lambda: (sha256, 0) in coordinator.fetched, "the transfer")
    coordinator.assign(bundle.assignment())
    coordinator.wait_for_update()
    assert not [report for report in coordinator.outcomes if report.installed.version]
    device.wait_for_log("model digits: postponed")
    coordinator.wait_for_outcome("installed")
    assert [offset for name, offset in coordinator.fetched if name == sha256][1] > 0


def test_a_newer_target_replaces_one_that_is_being_fetched(
    coordinator: Coordinator, device: Device, samples: Path, deploy: Callable[..., SignedRelease], hasty_programs: None
) -> None:
    coordinator.stuck = True
    deploy(1, 1)
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.asked_in_vain, "the first target")
    deploy(2, 2)
    device.wait_for_log("version 1 of model digits: dropped")
    coordinator.stuck = False
    coordinator._tell()  # the newer target's first fetch may be stuck, too
    found = coordinator.wait_for_outcome("installed")
    assert (found.version, found.installed.previous) == (2, 0)
    assert store(device).current("digits") == 2


def test_a_full_disk_fails_the_installation(
    coordinator: Coordinator,
    device: Device,
    samples: Path,
    deploy: Callable[..., SignedRelease],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.full_disk")
    deploy(1, 1)
    device.start(samples)
    failed = coordinator.wait_for_outcome("failed")
    assert failed.reason.endswith("the release needs 1 MB")
    assert store(device).names() == []


@pytest.fixture
def without_onnx_runtime(monkeypatch: pytest.MonkeyPatch, forked_programs: None) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.without_onnxruntime")


def test_without_onnx_runtime_the_plan_is_fetched_and_compared(
    without_onnx_runtime: None,
    coordinator: Coordinator,
    device: Device,
    samples: Path,
    bundle: Bundle,
    deploy: Callable[..., SignedRelease],
) -> None:
    plan = {
        "manifest.json": bundle.manifest.to_bytes(),
        "plan.pt": bundle.plan,
        "weights.safetensors": bundle.weights,
    }
    device.start(samples, "--holdout", "0.5")
    deploy(1, 1, plan=plan)
    first = coordinator.wait_for_outcome("installed")
    files = store(device).open("digits", 1).plan_files()
    assert files
    assert files["plan.pt"].read_bytes() == bundle.plan
    deploy(2, 2, plan=plan)
    second = coordinator.wait_for_outcome("installed", 2)
    assert (second.score, second.current_score) == (first.score, first.score)
    deploy(3, 3, plan={**plan, "plan.pt": b"no plan"})
    declined = coordinator.wait_for_outcome("declined")
    assert declined.reason.endswith("not a zip file")
    deploy(4, 4, plan={**plan, "weights.safetensors": bundle.weights[:-8]})
    failed = coordinator.wait_for_outcome("failed")
    assert "model does not work" in failed.reason
    assert failed.installed.version == 2
    older = replace(bundle.manifest, plan=replace(bundle.manifest.plan, interface="torchscript/0"))
    deploy(5, 5, plan={**plan, "manifest.json": older.to_bytes()})
    declined = coordinator.wait_for_outcome("declined", 2)
    assert declined.reason.startswith("the plan's interface is torchscript/0; this device runs ")
    assert (declined.version, declined.installed.version) == (5, 2)


def test_samples_of_another_form_keep_their_own_model(
    coordinator: Coordinator, device: Device, tmp_path: Path, deploy: Callable[..., SignedRelease]
) -> None:
    pictures = tmp_path / "pictures.npz"
    np.savez(pictures, inputs=np.zeros((9, 24, 24, 3), np.uint8), labels=np.arange(9) % 3)
    device.start(pictures)
    deploy(1, 1, spec=PICTURES)
    coordinator.wait_for_outcome("installed")
    deploy(1, 2, name="other")
    assert "inputs of PATH have dtype uint8" in coordinator.wait_for_outcome("declined").reason
    deploy(2, 3)
    assert coordinator.wait_for_outcome("declined", 2).reason == "input of version 2 differs from that of version 1"
    assert store(device).names() == ["digits"]


def _padding(size: int) -> bytes:
    """Return an unknown field of an ONNX model, which every reader skips."""
    content = bytes(np.random.default_rng(0).integers(0, 256, size, np.uint8))
    length, rest = b"", size
    while rest > 127:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return b"\xfa\x7f" + length + bytes([rest]) + content
