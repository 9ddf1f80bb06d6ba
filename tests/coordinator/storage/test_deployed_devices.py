"""Chosen devices and installed releases in both databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sql

from moonfed.coordinator.deployments.state import Choice, Deployment
from moonfed.coordinator.storage import deployed_devices
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.store import Store
from tests.support.device_certificates import enrolled
from tests.support.releases import NAME, add_releases, deployment, installed, release_record

FIRST, SECOND = deployment(1, 1), deployment(2, 2)
KNOWN = {NAME: {1: FIRST, 2: SECOND}}
OTHER = "letters"


@pytest.fixture
def connection(store: Store) -> Iterator[sql.Connection]:
    """A transaction in a store with two versions and deployments of a release, which have chosen nothing."""
    add_releases(store, 2)
    for made in (FIRST, SECOND):
        store.deployments.deploy(made, allow_empty=True)
    with store._transactions.write() as found:
        yield found


def choose(connection: sql.Connection, deployment: Deployment, *devices: str) -> None:
    deployed_devices.choose(connection, deployment, devices)


def test_what_was_chosen_for_a_former_device_while_it_was_removed_is_forgotten(store: Store) -> None:
    add_releases(store, 1)
    store.deployments.deploy(FIRST, allow_empty=True)
    with store._transactions.write() as connection:
        choose(connection, FIRST, "cam-1", "cam-2")
    enrolled(store.devices, "cam-1")
    with store._transactions.read() as connection:
        assert deployed_devices.chosen_by(connection, FIRST) == {"cam-2"}


def test_a_chosen_device_keeps_what_it_reported_when_it_is_chosen_again(connection: sql.Connection) -> None:
    choose(connection, FIRST, "cam-2", "cam-1")
    reported = Choice(
        deployment=1,
        device="cam-1",
        state="declined",
        had=True,
        reason="too low",
        score=0.5,
        current_score=0.0,
        samples=40,
        fingerprint="f",
        time=7.0,
    )
    deployed_devices.save(connection, NAME, [reported])
    choose(connection, FIRST, "cam-1", "cam-2", "cam-3")
    views = deployed_devices.views_of_name(connection, KNOWN, NAME)
    assert {device: view.choices for device, view in views.items()} == {
        "cam-1": (reported,),
        "cam-2": (Choice(deployment=1, device="cam-2"),),
        "cam-3": (Choice(deployment=1, device="cam-3"),),
    }
    assert deployed_devices.chosen_by(connection, FIRST) == {"cam-1", "cam-2", "cam-3"}
    assert deployed_devices.chosen_by(connection, SECOND) == set()


def test_a_view_has_the_newest_choice_first_and_what_the_device_has(connection: sql.Connection) -> None:
    for made in (FIRST, SECOND):
        choose(connection, made, "cam-1")
    has = installed(2, previous=1)
    deployed_devices.save_installed(connection, "cam-1", [has, replace(has, name=OTHER)])
    by_name = deployed_devices.views_of_name(connection, KNOWN, NAME)
    assert deployed_devices.views_of_devices(connection, KNOWN, ["cam-1"]) == {NAME: by_name}
    (view,) = by_name.values()
    assert [choice.deployment for choice in view.choices] == [2, 1]
    assert (view.deployments, view.installed) == (KNOWN[NAME], has)
    assert deployed_devices.installed_on(connection, "cam-1") == {NAME: has, OTHER: replace(has, name=OTHER)}
    deployed_devices.save_installed(connection, "cam-1", [installed(1)])
    assert deployed_devices.installed_on(connection, "cam-1")[NAME] == installed(1)


def test_a_deployment_made_since_is_left_out(connection: sql.Connection) -> None:
    """The deployments were read by an earlier transaction than the choices."""
    choose(connection, FIRST, "cam-1")
    choose(connection, SECOND, "cam-1", "cam-2")
    views = deployed_devices.views_of_devices(connection, {NAME: {1: FIRST}}, ["cam-1", "cam-2"])
    assert {device: len(view.choices) for device, view in views[NAME].items()} == {"cam-1": 1}
    assert deployed_devices.views_of_devices(connection, {}, ["cam-1"]) == {}


def test_more_devices_than_fit_into_a_statement_are_all_found(
    connection: sql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployed_devices, "DEVICES_AT_ONCE", 3)
    fleet = [f"cam-{number}" for number in range(7)]
    choose(connection, FIRST, *fleet)
    for device in fleet:
        deployed_devices.save_installed(connection, device, [installed(1)])
    views = deployed_devices.views_of_devices(connection, KNOWN, fleet)
    assert list(views[NAME]) == fleet
    assert all(view.installed == installed(1) for view in views[NAME].values())
    assert list(deployed_devices.views_of_devices(connection, KNOWN, fleet[2:4])[NAME]) == fleet[2:4]


def test_a_device_may_fetch_only_the_versions_that_chose_it(connection: sql.Connection) -> None:
    choose(connection, FIRST, "cam-1")
    choose(connection, SECOND, "cam-2")
    first, second = release_record(1), release_record(2)
    for blob in (first.ref, first.signature, *first.manifest.files("int8").values()):
        assert deployed_devices.may_fetch(connection, "cam-1", blob.sha256)
    model = second.manifest.files("float32")["model.onnx"].sha256
    assert [deployed_devices.may_fetch(connection, f"cam-{number}", model) for number in (1, 2, 3)] == [
        False,
        True,
        False,
    ]
    assert not deployed_devices.may_fetch(connection, "cam-1", "0" * 64)


def test_a_forgotten_device_leaves_no_row_and_others_keep_theirs(connection: sql.Connection) -> None:
    for device in ("cam-1", "cam-2"):
        choose(connection, FIRST, device)
        deployed_devices.save_installed(connection, device, [installed(1)])
    deployed_devices.forget(connection, "cam-1")
    for table in (tables.deployed_devices, tables.installed_releases):
        assert set(connection.execute(sql.select(table.c.device)).scalars()) == {"cam-2"}


def test_a_renamed_device_keeps_its_rows_and_gets_none_of_an_earlier_device_of_that_name(
    connection: sql.Connection,
) -> None:
    choose(connection, FIRST, "cam-1", "gate")
    choose(connection, SECOND, "gate")
    deployed_devices.save_installed(connection, "cam-1", [installed(1)])
    deployed_devices.save_installed(connection, "gate", [installed(2, previous=1)])
    deployed_devices.rename(connection, "cam-1", "gate")
    (view,) = deployed_devices.views_of_name(connection, KNOWN, NAME).values()
    assert view.choices == (Choice(deployment=1, device="gate"),)
    assert view.installed == installed(1)
    assert deployed_devices.installed_on(connection, "cam-1") == {}
