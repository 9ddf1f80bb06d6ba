"""A device that is asked whether it is eligible: what it checks, what it answers, and when it checks again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.edge_client.agent import eligibility
from moonfed.edge_client.agent.compatibility import REJECTED
from moonfed.edge_client.agent.fingerprint import REFUSED
from moonfed.edge_client.state.trust import load, pin
from moonfed.fleet.class_bits import pack_classes
from moonfed.plan.inspection.older_torch import requirements
from moonfed.transport.client import to_message
from tests.edge_client.conftest import Bundle, Device, check_of
from tests.support.device_coordinator import Coordinator
from tests.support.device_samples import draw
from tests.support.forked_process import PATCHES
from tests.support.future_operator import OPERATOR, archive_from_the_future
from tests.support.signatures import TRUST, signature, trust

TORCH = "the plan needs torch 99.0; this device has 2."


def changed(bundle: Bundle, coordinator: Coordinator, **fields: Any) -> Bundle:
    manifest = replace(bundle.manifest, **fields)
    other = replace(bundle, manifest=manifest, signature=signature(manifest.to_bytes()).to_bytes())
    other.put_into(coordinator.blobs)
    return other


def test_a_device_that_fits_is_eligible_and_has_fetched_no_plan_and_no_model(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.assign(check_of(bundle))
    device.start(samples)
    answer = coordinator.wait_for_answer()
    assert (answer.device, answer.run, answer.manifest, answer.reason) == ("cam-1", "tested", bundle.digest, "")
    assert answer.fingerprint == coordinator.connect_requests[0].fingerprint
    assert {sha256 for sha256, _ in coordinator.fetched} == {bundle.digest, ref_of_bytes(bundle.signature).sha256}
    device.wait_for_log("eligible, with 40 samples")
    coordinator.assign(bundle.assignment())
    coordinator.wait_for_update()
    assert len(device.processes()) == 3, "the round uses the processes that the check started"
    held = load(device.state)
    assert held
    assert dict(held.accepted)


def test_a_device_says_which_classes_it_has_only_if_it_is_asked(
    coordinator: Coordinator, device: Device, bundle: Bundle, tmp_path: Path
) -> None:
    samples = tmp_path / "two classes.npz"
    np.savez(samples, inputs=np.zeros((8, 6), np.float32), labels=np.arange(8) % 2 * 2)
    device.start(samples)
    for number, asked in enumerate((False, True, False), start=1):
        check = check_of(bundle, f"run-{number}")
        check.report_classes = asked
        coordinator.assign(check)
        answer = coordinator.wait_for_answer(number)
        assert (answer.reason, answer.classes) == ("", pack_classes([0, 2], 3) if asked else b"")


def test_each_reason_is_reported_once_without_paths_and_the_processes_end(
    coordinator: Coordinator, device: Device, bundle: Bundle, tmp_path: Path
) -> None:
    unlabelled = tmp_path / "wrong labels.npz"
    np.savez(unlabelled, inputs=np.zeros((9, 6), np.float32), labels=np.arange(9))
    device.start(unlabelled, "--max-memory", "100MB")
    two = changed(bundle, coordinator, target=class_target(9))
    cases = [
        (bundle, "labels of PATH range from 0 to 8; the model has 3 classes, 0 to 2"),
        (two, "100 MB (--max-memory)"),
        (changed(two, coordinator, plan=replace(bundle.manifest.plan, minimum_torch="99.0")), TORCH),
        (
            changed(two, coordinator, plan=replace(bundle.manifest.plan, minimum_samples=10)),
            "has 9 samples to train on",
        ),
    ]
    for number, (unfit, reason) in enumerate(cases, start=1):
        coordinator.assign(check_of(unfit, f"run-{number}"))
        answer = coordinator.wait_for_answer(number)
        assert answer.run == f"run-{number}"
        assert reason in answer.reason
    device.wait_for_log(f"run-1: this device is not eligible: labels of {unlabelled}")
    assert len(device.processes()) == 1
    device.stop()
    assert len(coordinator.answers) == len(cases)
    assert not coordinator.declined


def test_a_device_whose_torch_lacks_an_operator_is_not_eligible(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.start(samples)
    for run, operators, lacking in (
        ("run-1", requirements(bundle.plan)[1], ""),
        ("run-2", archive_from_the_future()[1], OPERATOR),
        ("run-3", ("aten::_upsample_lanczos4d_aa", *requirements(bundle.plan)[1]), "aten::_upsample_lanczos4d_aa"),
        ("run-4", requirements(bundle.plan)[1], ""),
    ):
        plan = replace(bundle.manifest.plan, operators=operators)
        coordinator.assign(check_of(changed(bundle, coordinator, plan=plan), run))
        reason = coordinator.wait_for_answer(int(run[-1])).reason
        lacks = f"this plan calls {lacking}, which torch {torch.__version__} of this device lacks"
        assert reason == (lacks if lacking else "")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (b'"target":{"kind":"class"', b'"target":{"kind":"boxes"', "target.kind"),
        (b'"input":{"kind":"features"', b'"input":{"kind":"video"', "input.kind"),
        (b'"format":"moonfed-bundle/4"', b'"format":"moonfed-bundle/5"', "format"),
    ],
    ids=["target", "input", "format"],
)
def test_a_device_declines_what_only_later_software_knows_in_one_sentence(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, old: bytes, new: bytes, field: str
) -> None:
    content = bundle.manifest.to_bytes().replace(old, new)
    assert content != bundle.manifest.to_bytes()
    check = check_of(bundle)
    for ref, blob in ((check.manifest, content), (check.signature, signature(content).to_bytes())):
        ref.CopyFrom(to_message(coordinator.blobs.put_bytes(blob)))
    coordinator.assign(check)
    device.start(samples)
    reason = coordinator.wait_for_answer().reason
    assert field in reason
    assert "\n" not in reason
    assert "unexpected" not in reason


def test_a_folder_that_is_no_class_is_reported_by_its_name_and_can_be_left_out(
    coordinator: Coordinator, device: Device, bundle: Bundle, tmp_path: Path
) -> None:
    pictures = tmp_path / "pictures"
    for name in (*bundle.manifest.classes, "unsorted"):
        for number in range(4):
            draw(pictures / name / f"{number}.png", (number, 0, 0))
    images = changed(bundle, coordinator, input=InputSpec(kind="image", shape=(4, 6, 3)))
    device.start(pictures)
    coordinator.assign(check_of(images, "run-1"))
    reason = coordinator.wait_for_answer(1).reason
    assert reason.startswith("'PATH' has the folder 'unsorted'")
    device.stop()
    device.start(pictures, "--ignore-folder", "other", "--ignore-folder", "unsorted")
    coordinator.assign(check_of(images, "run-2"))
    assert coordinator.wait_for_answer(2).reason == ""
    device.stop()


def test_an_untrusted_bundle_is_rejected_before_its_manifest_is_fetched_and_nothing_is_remembered(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.enrol()
    pin(device.state, trust(9))
    before = load(device.state)
    coordinator.assign(check_of(bundle))
    device.start(samples)
    assert "trust" in coordinator.wait_for_answer().reason
    assert bundle.digest not in {sha256 for sha256, _ in coordinator.fetched}
    assert load(device.state) == before
    device.wait_for_log(f"run tested: {REJECTED}: version 1 in")
    unsigned = check_of(bundle, "unsigned")
    unsigned.ClearField("signature")
    coordinator.assign(unsigned)
    assert coordinator.wait_for_answer(2).reason.endswith("is not signed")


def test_a_bundle_that_was_signed_under_another_name_is_rejected(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    other = replace(bundle, signature=signature(bundle.manifest.to_bytes(), name="other").to_bytes())
    other.put_into(coordinator.blobs)
    coordinator.assign(check_of(other))
    device.start(samples)
    assert "signed as 'other'" in coordinator.wait_for_answer().reason


def test_a_check_accepts_no_version_that_a_round_would_have_to_accept(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    """A bundle is accepted, and older versions of it are not any longer, only when the device trains it."""
    coordinator.assign(check_of(bundle))
    device.start(samples)
    coordinator.wait_for_answer()
    held = load(device.state)
    assert held
    assert (held.trust, dict(held.accepted)) == (TRUST, {})


def test_a_device_whose_data_change_connects_again_with_another_fingerprint(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.hasty_checks")
    good = samples.read_bytes()
    np.savez(samples, inputs=np.zeros((9, 6), np.float32), labels=np.arange(9))
    coordinator.assign(check_of(bundle))
    device.start(samples)
    assert "from 0 to 8" in coordinator.wait_for_answer().reason
    samples.write_bytes(good)
    answer = coordinator.wait_for_answer(2)
    first, second = (request.fingerprint for request in coordinator.connect_requests[:2])
    assert (answer.reason, answer.fingerprint) == ("", second)
    assert first != second
    assert "is unavailable" not in device.stop()[1]


def test_a_function_is_called_again_until_it_returns_fitting_data(
    coordinator: Coordinator,
    device: Device,
    bundle: Bundle,
    user_module: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.hasty_checks")
    coordinator.assign(check_of(bundle))
    device.start(
        user_module(
            "if not os.path.exists('ready'): raise OSError('no camera')\n"
            "return np.zeros((40, 6), np.float32), np.arange(40) % 3"
        )
    )
    assert "no camera" in coordinator.wait_for_answer().reason
    (tmp_path / "ready").touch()
    coordinator.wait_for(lambda: coordinator.answers[-1].reason == "", "an eligible device")
    assert len({answer.fingerprint for answer in coordinator.answers}) == 1
    assert len(coordinator.connect_requests) == 1


def test_a_round_that_does_not_fit_makes_the_device_ineligible_unless_its_data_have_changed(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.looks_never")
    good = samples.read_bytes()
    np.savez(samples, inputs=np.zeros((9, 6), np.float32), labels=np.arange(9))
    device.start(samples)
    coordinator.assign(bundle.assignment())
    assert coordinator.wait_for_decline().permanent
    samples.write_bytes(good)
    device.wait_for_log("declined: labels of")
    other = changed(bundle, coordinator, target=class_target(("one", "two")))
    assignment = bundle.assignment(run="other")
    assignment.manifest.CopyFrom(check_of(other).manifest)
    assignment.signature.CopyFrom(check_of(other).signature)
    coordinator.assign(assignment)
    coordinator.wait_for(lambda: len(coordinator.declined) == 2, "the second decline")
    assert not coordinator.declined[1].permanent
    coordinator.wait_for(lambda: len(coordinator.connect_requests) >= 2, "the device")
    first, second = (request.fingerprint for request in coordinator.connect_requests[:2])
    assert first != second


@pytest.mark.parametrize("change", ["more samples", "other labels", "a file that was incomplete"])
def test_a_check_that_meets_changed_data_is_answered_for_the_data_that_the_coordinator_knows(
    coordinator: Coordinator,
    device: Device,
    bundle: Bundle,
    samples: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    """The device connects again while it checks; the coordinator repeats its question, which must not get lost."""
    monkeypatch.setenv(PATCHES, "tests.support.looks_late")
    good = samples.read_bytes()
    if change == "more samples":
        np.savez(samples, inputs=np.zeros((9, 5), np.float32), labels=np.arange(9) % 3)
    elif change == "other labels":
        np.savez(samples, inputs=np.zeros((9, 6), np.float32), labels=np.arange(9))
    else:
        samples.write_bytes(good[:100])
    coordinator.assign(check_of(bundle, "first"))
    device.start(samples)
    assert coordinator.wait_for_answer().reason
    samples.write_bytes(good)
    time.sleep(0.2)  # the next look is due
    coordinator.assign(check_of(bundle, "second"))
    coordinator.wait_for(lambda: len(coordinator.connect_requests) == 2, "the device to connect again")
    known = coordinator.connect_requests[1].fingerprint
    assert known != coordinator.connect_requests[0].fingerprint
    coordinator.wait_for(
        lambda: [a.reason for a in coordinator.answers if (a.run, a.fingerprint) == ("second", known)] == [""],
        "an answer for the data that the coordinator knows",
    )


def test_data_that_change_make_a_device_eligible_within_seconds(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was read while it was being written must not take a device out for minutes."""
    monkeypatch.setenv(PATCHES, "tests.support.hasty_looks")
    good = samples.read_bytes()
    samples.write_bytes(good[: len(good) // 2])
    coordinator.assign(check_of(bundle))
    device.start(samples)
    assert coordinator.wait_for_answer().reason
    samples.write_bytes(good)
    coordinator.wait_for(lambda: coordinator.answers[-1].reason == "", "an eligible device")


def test_a_device_that_was_ineligible_when_it_stopped_is_asked_again_until_it_is_eligible(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    """Else, after a restart, it would neither say why it trains nothing nor look whether its data are corrected."""
    good = samples.read_bytes()
    samples.write_bytes(good[: len(good) // 2])
    coordinator.assign(check_of(bundle))
    device.start(samples)
    refused = coordinator.wait_for_answer()
    assert refused.reason
    device.stop()
    device.start(samples)
    again = coordinator.wait_for_answer(2)
    assert again.reason == refused.reason
    assert again.fingerprint != refused.fingerprint
    samples.write_bytes(good)
    coordinator.wait_for(lambda: coordinator.answers[-1].reason == "", "an eligible device")
    assert not (device.state / REFUSED).exists()
    device.stop()


def test_the_pause_between_two_checks_is_minutes_and_between_two_looks_seconds() -> None:
    assert (eligibility.RECHECK_SECONDS, eligibility.LOOK_SECONDS) == (300, 5)
