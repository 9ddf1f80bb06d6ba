"""A device process opens only bundles whose signature it trusts; each rejection names the attack."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moonfed.edge_client.agent.compatibility import REJECTED
from moonfed.edge_client.state.trust import load, pin
from moonfed.signing.bundle_signature import BundleSignature
from moonfed.signing.trust import TrustChain
from moonfed.transport.client import to_message
from tests.edge_client.conftest import Bundle, Device
from tests.support.device_coordinator import Coordinator
from tests.support.signatures import CHAIN, ROTATED, issued, signature, trust

pytestmark = pytest.mark.slow

BOTH = trust(1, 2, threshold=2)
STRANGERS = TrustChain((issued(trust(9), 9),))
TAKEOVER = TrustChain((*CHAIN.envelopes, issued(trust(9, version=2), 9)))


def signed(bundle: Bundle, **fields: object) -> Bundle:
    return replace(bundle, signature=signature(bundle.manifest.to_bytes(), **fields).to_bytes())  # type: ignore[arg-type]


def altered(bundle: Bundle) -> Bundle:
    """Return the bundle with one bit of the signed statement changed, in a well-formed document."""
    found = BundleSignature.from_bytes(bundle.signature)
    payload = found.envelope.payload.replace(b'"version":1', b'"version":3')
    envelope = replace(found.envelope, payload=payload)
    return replace(bundle, signature=BundleSignature(envelope, found.chain).to_bytes())


def assign(coordinator: Coordinator, bundle: Bundle, **fields: Any) -> None:
    bundle.put_into(coordinator.blobs)
    coordinator.assign(bundle.assignment(**fields))


ATTACKS: dict[str, tuple[Callable[[Bundle], Bundle], str]] = {
    "stranger": (lambda bundle: signed(bundle, keys=[9]), "is signed by .*, which is not trusted"),
    "stranger's trust file": (
        lambda bundle: signed(bundle, keys=[9], chain=STRANGERS),
        "trusted here",
    ),
    "rotation by nobody": (
        lambda bundle: signed(bundle, keys=[9], chain=TAKEOVER),
        "version 2 of the trust file is not signed by 1 of its predecessor's keys",
    ),
    "rotated key": (lambda bundle: signed(bundle, chain=ROTATED), "is signed by .*, which is not trusted"),
    "expired": (lambda bundle: signed(bundle, expires=1), "signature expired on 1970-01-01 00:00 UTC"),
    "altered signature": (altered, "something was altered"),
    "other manifest": (
        lambda bundle: replace(bundle, signature=signature(b"another manifest").to_bytes()),
        "is for another manifest",
    ),
    "other name": (lambda bundle: signed(bundle, name="other"), "is named 'tested', but signed as 'other'"),
    "nonsense": (lambda bundle: replace(bundle, signature=b"{}"), "the fields signature, trust"),
    "too large": (lambda bundle: replace(bundle, signature=b"{" * 65537), "65537 bytes"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_rejected_before_the_plan_is_fetched(
    attack: str, coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    change, reason = ATTACKS[attack]
    attacked = change(bundle)
    assign(coordinator, attacked)
    device.start(samples)
    declined = coordinator.wait_for_decline()
    assert declined.permanent
    assert re.search(reason, declined.reason), declined.reason
    fetched = {name for name, _ in coordinator.fetched}
    assert bundle.manifest.files["plan.pt"].sha256 not in fetched
    assert (bundle.digest in fetched) == (attack == "other name")  # which only the manifest shows
    assert (attacked.assignment().signature.sha256 in fetched) == (attack != "too large")
    log = device.stop()[1]
    assert f"run tested: {REJECTED}: {declined.reason}" in log


def test_an_assignment_without_a_signature_is_rejected(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    unsigned = bundle.assignment()
    unsigned.ClearField("signature")
    coordinator.assign(unsigned)
    device.start(samples)
    assert coordinator.wait_for_decline().reason.endswith("is not signed")
    assert not coordinator.fetched


def test_a_manifest_that_the_coordinator_swaps_is_rejected(
    coordinator: Coordinator, device: Device, bundle: Bundle, scaffold: Bundle, samples: Path
) -> None:
    swapped = bundle.assignment()
    swapped.manifest.CopyFrom(to_message(scaffold.put_into(coordinator.blobs)))
    coordinator.assign(swapped)
    device.start(samples)
    assert "is for another manifest" in coordinator.wait_for_decline().reason


@pytest.mark.parametrize("file", ["manifest", "plan"])
def test_one_altered_byte_of_a_signed_file_is_found(
    file: str, coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    content = {"manifest": bundle.manifest.to_bytes(), "plan": bundle.plan}[file]
    ref = coordinator.blobs.put_bytes(content)
    coordinator.blobs.path(ref.sha256).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    coordinator.assign(bundle.assignment())
    device.start(samples)
    device.wait_for_log("fetching it again")
    reason = coordinator.wait_for_decline().reason
    assert re.search(f"{ref.sha256[:8]}.* (differs|not)", reason) or "sha256" in reason, reason
    assert not coordinator.updates


def test_too_few_signatures_are_rejected_and_enough_are_accepted(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    chain = TrustChain((issued(BOTH, 1, 2),))
    device.enrol()
    pin(device.state, BOTH)
    assign(coordinator, signed(bundle, chain=chain))
    device.start(samples)
    assert coordinator.wait_for_decline().reason.endswith("it needs 2")
    assign(coordinator, signed(bundle, chain=chain, keys=[2, 1]), run="next")
    coordinator.wait_for_update()


def test_a_rejected_run_is_mentioned_once_however_often_it_is_assigned(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    stranger = signed(bundle, keys=[9])
    for number in (1, 2, 3):
        assign(coordinator, stranger, round=number)
        if number == 1:
            device.start(samples)
        coordinator.wait_for(lambda count=number: len(coordinator.declined) == count, "declines")  # type: ignore[misc]
    assert all(declined.permanent for declined in coordinator.declined)
    coordinator.assign(bundle.assignment(run="honest"))
    coordinator.wait_for_update()
    assert device.stop()[1].count(REJECTED) == 1


def test_an_older_version_is_rejected_also_after_a_restart(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    assign(coordinator, signed(bundle, version=5))
    device.start(samples)
    coordinator.wait_for_update()
    device.stop()
    assert json.loads((device.state / "trust.json").read_bytes())["accepted"] == {"tested": 5}
    assign(coordinator, signed(bundle, version=4), run="older")
    device.start(samples)
    reason = coordinator.wait_for_decline().reason
    assert reason == "version 4 of bundle 'tested' is older than version 5, which was accepted here"
    for version in (5, 6):
        assign(coordinator, signed(bundle, version=version), run=f"version-{version}")
        coordinator.wait_for_update(version - 3)


def test_a_rotation_is_followed_and_remembered(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    assign(coordinator, signed(bundle, keys=[2], chain=ROTATED))
    device.start(samples)
    coordinator.wait_for_update()
    held = load(device.state)
    assert held
    assert held.trust == trust(2, version=2)
    device.stop()
    assign(coordinator, signed(bundle), run="old-key")  # with the chain as it was before
    device.start(samples)
    assert "which is not trusted" in coordinator.wait_for_decline().reason


def test_a_device_without_a_trust_file_does_not_start(device: Device, samples: Path) -> None:
    device.enrol()
    (device.state / "trust.json").unlink()
    device.start(samples)
    code, log = device.finish()
    assert code == 3
    assert f"{device.state} has no trust file" in log
    (device.state / "trust.json").write_text("{}")
    device.start(samples)
    code, log = device.finish()
    assert code == 7
    assert "trust.json is damaged" in log


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        ({"batch_size": 1}, "batch_size of the assignment is 1; the signed manifest has 8"),
        ({"epochs": 1000}, "epochs of the assignment is 1000; the signed manifest has 2"),
        ({"hyperparameters": {"learning_rate": 1.0}}, r"hyperparameters of the assignment is {'learning_rate': 1.0};"),
    ],
)
def test_a_coordinator_cannot_choose_the_training(
    training: dict[str, Any], reason: str, coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    assign(coordinator, bundle, **training)
    device.start(samples)
    assert re.search(reason, coordinator.wait_for_decline().reason)
    assert not coordinator.updates


def test_files_larger_than_their_tensors_are_not_fetched(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    """Otherwise a coordinator could fill the device's disk."""
    huge = bundle.assignment()
    huge.blobs["model"].CopyFrom(to_message(coordinator.blobs.put_bytes(bytes(3 << 20))))
    coordinator.assign(huge)
    device.start(samples)
    assert re.search("the model of the assignment has 3145728 bytes", coordinator.wait_for_decline().reason)
    manifest = bundle.assignment(round=2)
    manifest.manifest.size = 1 << 30
    coordinator.assign(manifest)
    coordinator.wait_for(lambda: len(coordinator.declined) == 2, "the second refusal")
    assert "the manifest has 1073741824" in coordinator.declined[1].reason
    assert huge.blobs["model"].sha256 not in {name for name, _ in coordinator.fetched}
