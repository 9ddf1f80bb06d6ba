"""The registry of devices and join tokens, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from moonfed.coordinator.records import EligibilityReport
from moonfed.coordinator.storage.store import Store
from moonfed.errors import AlreadyExists, InvalidInput, NotFound, Untrusted, WrongState
from moonfed.formatting import moment
from moonfed.transport.identity import Certificate
from tests.support.device_certificates import LATER, as_held, enrolled, issued, token_record
from tests.support.refusals import refused
from tests.support.store_records import FIRST, RUN


def uses_left(store: Store, secret: str) -> int:
    token = store.devices.token(secret)
    assert token
    return token.uses_left


def rejected(store: Store) -> dict[str, tuple[str, str]]:
    return {serial: (found.reason, found.device) for serial, found in store.registry.load().devices.items()}


def test_a_token_is_used_up(store: Store) -> None:
    store.devices.add_token("secret", token_record())
    assert store.devices.enrol("cam-1", issued("a", 5.0), "secret")
    assert not store.devices.enrol("cam-2", issued("b"), "secret")
    assert [device.device for device in store.devices.devices()] == ["cam-1"]
    assert store.devices.enrol("cam-1", issued("a", 6.0), "secret"), "the device that used it up asks again"
    assert store.devices.devices()[0].certificate_expires == moment(6.0)
    assert uses_left(store, "secret") == 0
    assert store.devices.token("another") is None


def test_a_taken_name_uses_nothing_up(store: Store) -> None:
    store.devices.add_token("secret", token_record(uses=2))
    assert store.devices.enrol("cam-1", issued("a"), "secret")
    with pytest.raises(AlreadyExists, match="'cam-1'"):
        store.devices.enrol("cam-1", issued("b"), "secret")
    assert uses_left(store, "secret") == 1


def test_devices_are_counted_by_the_release_that_they_reported(store: Store) -> None:
    for name, release in (("cam-1", "0.1.0"), ("cam-2", "0.1.0"), ("cam-3", "0.2.0"), ("cam-4", "")):
        certificate = enrolled(store.devices, name)
        if release:
            store.devices.seen(name, {}, certificate, release=release)
    assert store.devices.by_release() == {"0.1.0": 2, "0.2.0": 1, "": 1}


def test_a_devices_record_is_updated(store: Store) -> None:
    certificate = enrolled(store.devices, "cam-1")
    store.devices.seen("cam-1", {"torch": "2.6"}, certificate)
    store.devices.seen("cam-1")
    store.devices.renewed("cam-1", certificate, issued("b", 77.0))
    device = store.devices.devices()[0]
    assert (device.platform, device.certificate_expires) == ({"torch": "2.6"}, moment(77.0))
    assert device.last_seen
    assert device.enrolled
    assert device.last_seen >= device.enrolled


def test_a_device_that_enrols_twice_at_the_same_time_uses_a_token_once(store: Store) -> None:
    """A request may be repeated while the first one is still being answered."""
    store.devices.add_token("secret", token_record(uses=20))
    for number in range(5):
        together = Barrier(4)

        def enrol(device: str, key: str, together: Barrier = together) -> bool:
            together.wait()
            return store.devices.enrol(device, issued(key), "secret")

        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(enrol, f"cam-{number}", f"key {number}") for _ in range(4)]
        assert all(enrolled.result() for enrolled in asked)
    assert uses_left(store, "secret") == 15


def test_concurrent_enrolments_never_exceed_a_tokens_uses(store: Store) -> None:
    store.devices.add_token("secret", token_record(uses=5))
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(store.devices.enrol, f"cam-{n}", issued(f"{n}"), "secret") for n in range(16)]
    assert sum(enrolled.result() for enrolled in asked) == 5
    assert len(store.devices.devices()) == 5


def test_revoking_a_device_rejects_all_its_certificates_and_nobody_elses(store: Store) -> None:
    registry = store.devices
    first, other = enrolled(registry, "cam-1"), enrolled(registry, "cam-2")
    second = issued("b")
    registry.renewed("cam-1", first, second)
    before = store.registry.version()
    assert registry.revoke("cam-1").revoked
    assert store.registry.version() > before
    assert rejected(store) == dict.fromkeys((first.serial, second.serial), ("revoked", "cam-1"))
    assert [found.reason for found in registry.device("cam-1").certificates] == ["revoked", "revoked"]
    for certificate in (first, as_held(second, "cam-1")):
        with refused(Untrusted, "certificate", "revoked"):
            registry.holder(certificate)
        with pytest.raises(Untrusted, match="was revoked"):
            registry.renewed("cam-1", certificate, issued("c"))
    assert registry.holder(other) == "cam-2"


def test_a_revocation_between_signing_and_recording_a_renewal_rejects_it(store: Store) -> None:
    registry = store.devices
    certificate = enrolled(registry, "cam-1")
    assert registry.holder(certificate) == "cam-1"
    registry.revoke("cam-1")
    with pytest.raises(Untrusted):
        registry.renewed("cam-1", certificate, issued("b"))
    assert len(registry.device("cam-1").certificates) == 1


def test_a_removal_between_signing_and_recording_a_renewal_rejects_it(store: Store) -> None:
    registry = store.devices
    certificate = enrolled(registry, "cam-1")
    assert registry.holder(certificate) == "cam-1"
    registry.remove("cam-1")
    with pytest.raises(Untrusted, match="was removed"):
        registry.renewed("cam-1", certificate, issued("b"))
    successor = enrolled(registry, "cam-1")
    assert [found.serial for found in registry.device("cam-1").certificates if not found.rejected] == [successor.serial]


def test_an_unknown_certificate_of_a_revoked_device_is_not_renewed_and_rejected_when_it_is_shown(store: Store) -> None:
    """It was issued after the backup that was restored."""
    enrolled(store.devices, "cam-1")
    store.devices.revoke("cam-1")
    unknown = as_held(issued(), "cam-1")
    with pytest.raises(Untrusted, match="was revoked"):
        store.devices.renewed("cam-1", unknown, issued("b"))
    before = store.registry.version()
    store.devices.seen("cam-1", {}, unknown)
    assert rejected(store)[unknown.serial] == ("revoked", "cam-1")
    assert store.registry.version() > before


def test_a_revoked_device_returns_with_a_token_for_it_and_another_key_only(store: Store) -> None:
    registry = store.devices
    old = enrolled(registry, "cam-1", key="leaked")
    registry.revoke("cam-1")
    registry.add_token("any", token_record(uses=5))
    registry.add_token("own", token_record(device="cam-1"))
    with refused(Untrusted, "device"):
        registry.enrol("cam-1", issued("leaked"), "any")
    with refused(AlreadyExists, "device"):
        registry.enrol("cam-1", issued("new"), "any")
    with refused(Untrusted, "key of device", "cam-1"):
        registry.enrol("cam-1", issued("leaked"), "own")
    assert (uses_left(store, "any"), uses_left(store, "own")) == (5, 1)
    new = issued("new")
    assert registry.enrol("cam-1", new, "own")
    assert registry.device("cam-1").revoked is None
    assert rejected(store) == {old.serial: ("revoked", "cam-1")}
    assert registry.holder(as_held(new, "cam-1")) == "cam-1"


def test_a_token_for_a_device_replaces_its_certificates_once(store: Store) -> None:
    registry = store.devices
    old = enrolled(registry, "cam-1")
    registry.label("cam-1", {"site": "berlin"})
    registry.add_token("own", token_record(device="cam-1"))
    new, again = issued("new"), issued("new")
    assert registry.enrol("cam-1", new, "own")
    assert rejected(store) == {old.serial: ("replaced", "cam-1")}
    assert registry.enrol("cam-1", again, "own"), "its reply was lost"
    assert rejected(store) == {old.serial: ("replaced", "cam-1")}
    assert not registry.enrol("cam-1", issued("thief's"), "own")
    assert registry.device("cam-1").operator_labels == {"site": "berlin"}
    with refused(NotFound, "device", "cam-9"):
        registry.add_token("for nobody", token_record(device="cam-9"))


def test_a_removed_device_is_forgotten_and_its_name_free(store: Store) -> None:
    registry = store.devices
    old = enrolled(registry, "cam-1")
    registry.add_token("own", token_record(device="cam-1"))
    store.add_run(RUN)
    store.open_round(FIRST, ["cam-1"])
    reports = [EligibilityReport(device=name, fingerprint="f", reason="too small") for name in ("cam-1", "cam-2")]
    store.eligibility.record(RUN.run, reports)
    registry.add_token("any", token_record())
    registry.remove("cam-1")
    assert list(store.eligibility.of_run(RUN.run)) == ["cam-2"]
    assert [token.device for token in registry.tokens() if token.revoked] == ["cam-1"]
    assert registry.devices() == []
    assert rejected(store) == {old.serial: ("removed", "cam-1")}
    with refused(Untrusted, "certificate", "removed"):
        registry.holder(old)
    with refused(Untrusted, "join token", "revoked"):
        registry.enrol("cam-1", issued("b"), "own")
    assert store.participants(RUN.run) == set(), "another device may have that name soon"
    new = enrolled(registry, "cam-1")
    assert registry.holder(new) == "cam-1"
    assert rejected(store) == {old.serial: ("removed", "cam-1")}
    with refused(NotFound, "device", "cam-7"):
        registry.remove("cam-7")


def test_a_removed_device_that_is_just_connecting_stays_forgotten(store: Store) -> None:
    certificate = enrolled(store.devices, "cam-1")
    store.devices.remove("cam-1")
    store.devices.seen("cam-1", {"torch": "2.6"}, certificate)
    store.devices.seen("cam-1", None)
    assert store.devices.devices() == []


def test_a_device_that_enrolled_after_a_restored_backup_becomes_known_with_its_certificate(store: Store) -> None:
    certificate = as_held(issued(), "cam-1")
    store.devices.seen("cam-1", {"torch": "2.6"}, certificate)
    assert [found.serial for found in store.devices.device("cam-1").certificates] == [certificate.serial]
    store.devices.revoke("cam-1")
    assert rejected(store) == {certificate.serial: ("revoked", "cam-1")}


def test_a_renamed_device_keeps_everything_and_renews_under_its_new_name(store: Store) -> None:
    registry = store.devices
    old = enrolled(registry, "cam-1")
    registry.label("cam-1", {"site": "berlin"})
    registry.add_token("own", token_record(device="cam-1"))
    store.add_run(RUN)
    store.open_round(FIRST, ["cam-1"])
    store.eligibility.record(RUN.run, [EligibilityReport(device="cam-1", fingerprint="f")])
    registry.rename("cam-1", "gate")
    assert store.eligibility.of_run(RUN.run) == {}, "another device may have that name soon"
    assert [device.device for device in registry.devices()] == ["gate"]
    assert registry.device("gate").operator_labels == {"site": "berlin"}
    assert store.participants(RUN.run) == {"gate"}
    assert rejected(store) == {old.serial: ("renamed", "gate")}
    token = registry.token("own")
    assert token
    assert token.device == "gate"
    registry.rename("gate", "gate-2")
    assert registry.holder(old) == "gate-2", "also after it was renamed twice"
    with pytest.raises(WrongState, match="has just been renamed"):
        registry.renewed("gate", old, issued("b"))
    new = issued("b")
    registry.renewed("gate-2", old, new)
    assert registry.holder(as_held(new, "gate-2")) == "gate-2"


def test_a_renamed_device_can_be_revoked_before_it_knows(store: Store) -> None:
    old = enrolled(store.devices, "cam-1")
    store.devices.rename("cam-1", "gate")
    store.devices.revoke("gate")
    assert rejected(store) == {old.serial: ("revoked", "gate")}


def test_another_device_may_have_the_former_name_of_a_renamed_one(store: Store) -> None:
    registry = store.devices
    old = enrolled(registry, "cam-1")
    registry.rename("cam-1", "gate")
    new = enrolled(registry, "cam-1")
    assert (registry.holder(old), registry.holder(new)) == ("gate", "cam-1")
    registry.revoke("cam-1")
    assert rejected(store) == {old.serial: ("renamed", "gate"), new.serial: ("revoked", "cam-1")}


def test_a_device_may_have_the_name_of_a_removed_one_with_which_it_was_in_a_run(store: Store) -> None:
    for name in ("cam-1", "gate"):
        enrolled(store.devices, name)
    store.add_run(RUN)
    store.open_round(FIRST, ["cam-1", "gate"])
    store.devices.remove("gate")
    assert store.devices.rename("cam-1", "gate").device == "gate"
    assert store.participants(RUN.run) == {"gate"}


def test_a_name_that_is_taken_is_rejected(store: Store) -> None:
    enrolled(store.devices, "cam-1")
    enrolled(store.devices, "cam-2")
    with refused(AlreadyExists, "device", "cam-2"):
        store.devices.rename("cam-1", "cam-2")
    with refused(NotFound, "device", "cam-3"):
        store.devices.rename("cam-3", "cam-4")
    assert rejected(store) == {}


def test_labels_are_set_and_removed(store: Store) -> None:
    enrolled(store.devices, "cam-1")
    before = store.registry.version()
    assert store.devices.label("cam-1", {"site": "berlin", "tier": "gold"}).operator_labels == {
        "site": "berlin",
        "tier": "gold",
    }
    assert store.devices.label("cam-1", {"site": "ulm"}, ["tier", "none"]).operator_labels == {"site": "ulm"}
    assert store.registry.load().labels == {"cam-1": {"site": "ulm"}}
    assert store.registry.version() == before + 2
    with pytest.raises(InvalidInput, match="there are 65 labels"):
        store.devices.label("cam-1", {f"l{number}": "x" for number in range(64)})
    with refused(NotFound, "device", "cam-7"):
        store.devices.label("cam-7", {"site": "ulm"})
    assert store.registry.load().labels == {"cam-1": {"site": "ulm"}}


def test_long_expired_certificates_are_forgotten_unless_they_were_rejected(store: Store) -> None:
    registry, long_ago = store.devices, time.time() - 100 * 86400.0
    registry.add_token("secret", token_record())
    registry.enrol("cam-1", issued("a", long_ago), "secret")
    replaced = registry.device("cam-1").certificates[0]
    registry.add_token("own", token_record(device="cam-1"))
    old, new = issued("b", long_ago), issued("b", LATER)
    assert registry.enrol("cam-1", old, "own")
    registry.renewed("cam-1", as_held(old, "cam-1"), new)
    assert [found.serial for found in registry.device("cam-1").certificates] == [replaced.serial, new.serial]


def test_a_revoked_token_enrols_nobody_and_keeps_the_devices_that_it_enrolled(store: Store) -> None:
    registry = store.devices
    secret = "ab12cd34ef56" + "0" * 52
    registry.add_token(secret, token_record(uses=3))
    certificate = issued("a")
    assert registry.enrol("cam-1", certificate, secret)
    assert registry.revoke_token("ab12cd").revoked
    with refused(Untrusted, "join token", "revoked"):
        registry.enrol("cam-2", issued("b"), secret)
    with refused(Untrusted, "join token", "revoked"):
        registry.enrol("cam-1", issued("a"), secret)
    assert registry.holder(Certificate(kind="device", name="cam-1", serial=certificate.serial, expires=0.0)) == "cam-1"
