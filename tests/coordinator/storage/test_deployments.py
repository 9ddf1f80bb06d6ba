"""Deployments in the database: exact counts, stable choices, and the targets of devices, on both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sql

from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import TargetSpec
from moonfed.control.releases import Deployment as Shown
from moonfed.coordinator.deployments.state import Deployment
from moonfed.coordinator.storage import deployments
from moonfed.coordinator.storage.deployments import Arrival, DeviceTarget
from moonfed.coordinator.storage.store import Store
from moonfed.errors import InvalidInput, NotFound, WrongState
from moonfed.labels import write_labels
from tests.coordinator.storage.conftest import Open
from tests.support.refusals import refused
from tests.support.releases import NAME, add_devices, add_releases, deployment, installed, release_record, report
from tests.support.store_records import RUN


def states(store: Store, number: int = 0) -> dict[str, int]:
    return dict(Counter(found.state for found in store.deployments.devices(NAME, number)))


def targets(store: Store, devices: list[str]) -> dict[str, int]:
    """The version of each device that is to install one."""
    found = store.deployments.targets(devices)
    return {device: one.target.version for device, targets in found.items() for one in targets if not one.installed}


def install(store: Store, devices: list[str]) -> int:
    """Let all devices install their targets, as a fleet does; returns their number."""
    aims = store.deployments.targets(devices)
    for device, found in aims.items():
        for one in found:
            if not one.installed:
                aim = one.target
                store.deployments.report(report(device, aim.deployment, aim.version, "installed", aim.version))
    return len(aims)


def deploy(store: Store, version: int, **fields: object) -> Shown:
    return store.deployments.deploy(deployment(0, version, **fields))


def test_a_release_goes_to_a_tenth_then_to_all_then_back(store: Store, open_store: Open) -> None:
    fleet = add_releases(store, 2, devices=50)
    assert deploy(store, 1).chosen == 50
    assert targets(store, fleet) == dict.fromkeys(fleet, 1)
    install(store, fleet)
    assert states(store) == {"installed": 50}

    store = open_store()  # a kill in between
    tenth = deploy(store, 2, percent=10)
    assert (tenth.chosen, tenth.matching, tenth.number) == (5, 50, 2)
    first = targets(store, fleet)
    assert len(first) == 5
    assert set(first.values()) == {2}
    install(store, fleet)
    assert states(store, 2) == {"installed": 5}
    assert states(store, 1) == {"installed": 45, "superseded": 5}

    store = open_store()
    assert store.deployments.widen(NAME, 100).chosen == 50
    assert len(targets(store, fleet)) == 45
    assert not set(targets(store, fleet)) & set(first)
    install(store, fleet)
    assert states(store) == {"installed": 50}

    store = open_store()
    back = store.deployments.roll_back(NAME)
    assert back.status == "rolled-back"
    assert targets(store, fleet) == dict.fromkeys(fleet, 1)
    assert states(store, 2) == {"returning": 50}
    install(store, fleet)
    assert states(store, 2) == {"returned": 50}
    assert states(store) == {"installed": 50}
    assert targets(open_store(), fleet) == {}


def test_a_deployment_chooses_the_same_devices_at_every_replica(store: Store, open_store: Open) -> None:
    fleet = add_releases(store, 1, devices=30)
    deploy(store, 1, percent=20)
    chosen = targets(store, fleet)
    assert len(chosen) == 6
    assert targets(open_store(), fleet) == chosen
    assert not open_store().deployments.choose()
    assert targets(store, fleet) == chosen


def test_new_devices_keep_the_share_and_displace_none(store: Store) -> None:
    fleet = add_releases(store, 1, devices=20)
    deploy(store, 1, percent=10)
    before = targets(store, fleet)
    fleet += add_devices(store, 20, first=20)
    version = store.deployments.version()
    assert store.deployments.choose()
    assert store.deployments.version() > version
    after = targets(store, fleet)
    assert len(after) == 4
    assert before.items() <= after.items()


def test_a_new_device_gets_the_version_of_the_rest_of_the_fleet(store: Store) -> None:
    add_releases(store, 2, devices=20)
    deploy(store, 1)
    deploy(store, 2, percent=5)
    added = add_devices(store, 20, first=20)
    store.deployments.choose()
    assert Counter(targets(store, added).values()) == {1: 19, 2: 1}


def test_labels_select_devices_and_trusted_ones_are_operators(store: Store) -> None:
    add_releases(store, 2)
    own = add_devices(store, 3, site="berlin")
    other = add_devices(store, 3, first=3, site="rome")
    store.devices.label(other[0], {"site": "berlin"})
    store.devices.label(own[0], {"site": "rome"})
    berlin = deploy(store, 1, labels={"site": "berlin"})
    assert (berlin.matching, berlin.chosen) == (3, 3)
    assert set(targets(store, own + other)) == {*own[1:], other[0]}
    trusted = deploy(store, 2, labels={"site": "berlin"}, trusted_labels=True)
    assert (trusted.matching, trusted.chosen) == (1, 1)
    assert targets(store, own + other) == {own[1]: 1, own[2]: 1, other[0]: 2}
    store.devices.label(own[1], {"site": "berlin"})
    assert store.deployments.choose()
    assert targets(store, own + other)[own[1]] == 2


def test_revoked_devices_are_not_chosen_and_removed_ones_are_forgotten(store: Store) -> None:
    fleet = add_releases(store, 1, devices=4)
    store.devices.revoke(fleet[0])
    view = deploy(store, 1)
    assert (view.matching, view.chosen) == (3, 3)
    install(store, fleet)
    store.devices.remove(fleet[1])
    assert states(store) == {"installed": 2}
    store.devices.revoke(fleet[2])
    (view,) = store.deployments.views(NAME)
    assert (view.matching, view.chosen, view.states, view.stranded) == (1, 1, {"installed": 1}, 1)
    assert states(store) == {"installed": 1}
    add_devices(store, 1, first=1)
    assert store.deployments.choose()
    assert targets(store, fleet) == {fleet[1]: 1}


def test_a_renamed_device_keeps_its_place(store: Store) -> None:
    fleet = add_releases(store, 1, devices=10)
    deploy(store, 1, percent=10)
    (device,) = targets(store, fleet)
    install(store, fleet)
    store.devices.rename(device, "gate")
    assert [(found.device, found.state) for found in store.deployments.devices(NAME)] == [("gate", "installed")]
    assert not store.deployments.choose()


def test_a_paused_deployment_neither_chooses_nor_begins(store: Store) -> None:
    fleet = add_releases(store, 1, devices=10)
    deploy(store, 1, percent=50)
    accepting, *others = targets(store, fleet)
    store.deployments.report(report(accepting, 1, 1, "accepted", 0))
    paused = store.deployments.pause(NAME)
    assert paused.states == {"accepted": 1, "pending": 4}
    assert store.deployments.widen(NAME, 100).chosen == 5
    assert targets(store, fleet) == {accepting: 1}
    assert not store.deployments.choose()
    assert store.deployments.resume(NAME).chosen == 10
    assert set(targets(store, fleet)) == set(fleet) >= {*others}


def test_a_decline_is_recorded_once_and_not_retried(store: Store, open_store: Open) -> None:
    (device,) = add_releases(store, 2, devices=1)
    deploy(store, 1)
    install(store, [device])
    deploy(store, 2)
    declined = report(
        device, 2, 2, "declined", 1, reason="0.60 is less", score=0.6, current_score=0.9, samples=50, fingerprint="f"
    )
    (after,) = store.deployments.report(declined)
    assert (after.target.version, after.installed) == (1, True)
    (found,) = open_store().deployments.devices(NAME)
    assert (found.state, found.version, found.installed) == ("declined", 2, 1)
    assert (found.reason, found.score, found.current_score, found.samples) == (
        "0.60 is less",
        0.6,
        0.9,
        50,
    )
    same, changed = (connect(store, device, 1, fingerprint) for fingerprint in ("f", "g"))
    assert [one.target.version for one in same if not one.installed] == []
    assert [one.target.version for one in changed if not one.installed] == [2]
    store.deployments.report(declined)
    deploy(store, 2)
    assert targets(store, [device]) == {device: 2}


def test_scores_of_a_version_whose_run_has_privacy_are_not_recorded(store: Store) -> None:
    (device,) = add_releases(store, 1, devices=1, private=True)
    deploy(store, 1)
    store.deployments.report(report(device, 1, 1, "declined", 0, score=0.6, current_score=0.9, samples=50))
    (found,) = store.deployments.devices(NAME)
    assert (found.state, found.score, found.current_score, found.samples) == ("declined", None, None, 0)


@pytest.mark.parametrize("field", ["score", "current_score"])
def test_a_score_that_the_release_cannot_have_is_not_recorded(store: Store, field: str) -> None:
    (device,) = add_releases(store, 1, devices=1)
    deploy(store, 1)
    with refused(InvalidInput, field, 55.1):
        store.deployments.report(replace(report(device, 1, 1, "accepted", 0), **{field: 55.1}))  # type: ignore[arg-type]
    (found,) = store.deployments.devices(NAME)
    assert (found.state, found.score, found.current_score) == ("pending", None, None)


def test_a_release_of_values_has_any_score(store: Store) -> None:
    store.add_run(RUN)
    values = TargetSpec(kind="values", names=("load",), shape=(1,))
    metric = Metric(name="rmse", maximise=False, share=False)
    store.releases.add(release_record(1, target=values, metric=metric))
    (device,) = add_devices(store, 1)
    deploy(store, 1)
    store.deployments.report(report(device, 1, 1, "accepted", 0, score=55.1, current_score=60.0))
    (found,) = store.deployments.devices(NAME)
    assert (found.score, found.current_score) == (55.1, 60.0)


def connect(store: Store, device: str, has: int, fingerprint: str = "") -> list[DeviceTarget]:
    arrival = Arrival(device=device, installed=(installed(has),) if has else (), fingerprint=fingerprint)
    return store.deployments.connected([arrival]).get(device, [])


def test_what_a_device_says_when_it_connects_is_the_truth(store: Store) -> None:
    (device,) = add_releases(store, 2, devices=1)
    assert connect(store, device, 1) == []  # nothing was ever deployed
    deploy(store, 1)
    (aim,) = connect(store, device, 1)  # its report was lost, or somebody copied the model
    assert aim.installed
    assert states(store) == {"installed": 1}
    (aim,) = connect(store, device, 0)  # its disk was replaced
    assert (aim.target.version, aim.installed, aim.target.roll_back) == (1, False, True)
    assert states(store) == {"pending": 1}


def test_the_first_release_of_a_device_is_removed_by_its_roll_back(store: Store) -> None:
    (device,) = add_releases(store, 1, devices=1)
    deploy(store, 1)
    install(store, [device])
    store.deployments.roll_back(NAME)
    (aim,) = store.deployments.targets([device])[device]
    assert (aim.target.version, aim.target.manifest, aim.target.deployment) == (0, None, 1)
    assert store.deployments.report(report(device, 1, 0, "installed", 0)) == []
    assert states(store, 1) == {"returned": 1}


def test_a_device_that_fell_back_is_reported_and_keeps_its_previous_version(store: Store) -> None:
    (device,) = add_releases(store, 2, devices=1)
    deploy(store, 1)
    install(store, [device])
    deploy(store, 2)
    install(store, [device])
    store.deployments.report(report(device, 2, 2, "fell-back", 1, reason="it does not load"))
    (found,) = store.deployments.devices(NAME)
    assert (found.state, found.installed, found.reason) == ("fell-back", 1, "it does not load")
    assert targets(store, [device]) == {}


def test_each_target_names_its_release_and_how_it_is_compared(store: Store) -> None:
    (device,) = add_releases(store, 1, devices=1)
    deploy(store, 1, variant="int8", max_drop=2.5)
    (aim,) = store.deployments.targets([device])[device]
    record = release_record(1)
    assert (aim.target.manifest, aim.target.signature) == (record.ref, record.signature)
    assert (aim.target.variant, aim.target.max_drop, aim.target.roll_back) == ("int8", 2.5, False)


def test_roll_backs_are_counted_one_at_a_time(store: Store) -> None:
    add_releases(store, 3, devices=1)
    for version in (1, 2, 3):
        deploy(store, version)
    with refused(WrongState, "deployment", 2):
        store.deployments.roll_back(NAME, 2)
    for _ in range(2):  # a repeated request
        assert store.deployments.roll_back(NAME, 3).number == 3
    assert [found.status for found in store.deployments.views(NAME)] == ["active", "active", "rolled-back"]
    assert store.deployments.roll_back(NAME).number == 2
    assert store.deployments.roll_back(NAME).number == 1
    with refused(WrongState, "release", "digits"):
        store.deployments.roll_back(NAME)
    with pytest.raises(WrongState, match="was rolled back; it cannot be widened"):
        store.deployments.widen(NAME, 100)


@pytest.mark.parametrize(
    ("version", "ended"),
    [pytest.param(2, [4], id="the newest of its deployments"), pytest.param(1, [2, 3, 4], id="the oldest")],
)
def test_a_roll_back_to_a_version_ends_all_newer_deployments(store: Store, version: int, ended: list[int]) -> None:
    fleet = add_releases(store, 3, devices=2)
    for each in (1, 2, 2, 3):
        deploy(store, each)
        install(store, fleet)
    for _ in range(2):  # a repeated request
        store.deployments.roll_back_to(NAME, version)
        rolled = [one.number for one in store.deployments.views(NAME) if one.status == "rolled-back"]
        assert rolled == ended
    assert targets(store, fleet) == dict.fromkeys(fleet, version)
    with refused(WrongState, "to", 3):
        store.deployments.roll_back_to(NAME, 3)


def test_a_selection_of_no_device_changes_nothing(store: Store) -> None:
    add_releases(store, 1)
    with refused(InvalidInput, "selection", ""):
        deploy(store, 1)
    fleet = add_devices(store, 2, site="berlin")
    for wanted in ({"sitee": "berlin"}, {"site": "Berlin"}, {"site": "berlin", "tier": "gold"}):
        with refused(InvalidInput, "selection", write_labels(wanted)):
            deploy(store, 1, labels=wanted)
    with refused(InvalidInput, "selection", "site=berlin"):
        deploy(store, 1, labels={"site": "berlin"}, trusted_labels=True)
    assert store.deployments.views(NAME) == []
    assert deploy(store, 1, labels={"site": "berlin"}, percent=10).chosen == 1
    for device in fleet:
        store.devices.revoke(device)
    with refused(InvalidInput, "selection", "site=berlin"):
        store.deployments.widen(NAME, 50)
    assert store.deployments.widen(NAME, 50, allow_empty=True).percent == 50
    found = store.deployments.deploy(deployment(0, 1, labels={"site": "rome"}), allow_empty=True)
    assert (found.matching, found.chosen) == (0, 0)


def test_a_deployment_made_at_the_same_moment_is_left_for_the_next_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (device,) = add_releases(store, 2, devices=1)
    deploy(store, 1)
    read, before = deployments._all, list[dict[str, dict[int, Deployment]]]()

    def outdated(connection: sql.Connection) -> dict[str, dict[int, Deployment]]:
        before.append(read(connection))
        if len(before) == 1:
            deploy(store, 2)
        return before[0]

    monkeypatch.setattr(deployments, "_all", outdated)
    assert [one.target.version for one in connect(store, device, 0)] == [1]
    monkeypatch.undo()
    assert targets(store, [device]) == {device: 2}


def test_mistakes_of_operators_and_devices_are_named(store: Store) -> None:
    add_releases(store, 1, devices=1)
    mistakes: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: deploy(store, 2), NotFound, "release 'digits' has no version 2; the newest is 1"),
        (lambda: store.deployments.deploy(Deployment(name="x", version=1)), NotFound, "there is no release 'x'"),
        (lambda: deploy(store, 1, variant="float16"), InvalidInput, "variant is 'float16'"),
        (lambda: store.deployments.widen(NAME, 5), NotFound, "release 'digits' was never deployed"),
        (lambda: store.deployments.views("x"), NotFound, "there is no release 'x'"),
        (lambda: store.deployments.devices(NAME, 3), NotFound, "release 'digits' has no deployment 3"),
        (
            lambda: store.deployments.report(report("cam-000", 1, 1, "installed", 1)),
            NotFound,
            "no deployment 1 of 'digits' has chosen device 'cam-000'",
        ),
    ]
    for call, error, reason in mistakes:
        with pytest.raises(error, match=reason):
            call()


def test_concurrent_operators_get_different_numbers(store: Store) -> None:
    add_releases(store, 1, devices=5)
    with ThreadPoolExecutor(8) as pool:
        views = list(pool.map(lambda _: deploy(store, 1), range(8)))
    assert sorted(view.number for view in views) == list(range(1, 9))
