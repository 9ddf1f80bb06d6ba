"""The version that a device is to predict with."""

from __future__ import annotations

from typing import Any

import pytest

from moonfed.coordinator.deployments.state import Deployment, DeviceView, Target, differs
from moonfed.errors import InvalidInput
from tests.support.releases import chosen, installed, view


def target(found: DeviceView) -> int | None:
    aim = found.target()
    return aim.version if aim else None


def test_the_newest_deployment_that_chose_the_device_gives_its_target() -> None:
    assert target(view(0, chosen(1))) == 1
    assert target(view(1, chosen(1, "installed"), chosen(2))) == 2
    assert target(view(1, chosen(1, "installed"), chosen(2, "accepted"))) == 2
    assert target(view(2, chosen(1, "installed"), chosen(2, "installed"))) == 2


@pytest.mark.parametrize("state", ["declined", "failed", "fell-back"])
def test_a_device_that_settled_against_a_version_keeps_what_it_has(state: str) -> None:
    assert target(view(0, chosen(1, state))) is None
    assert target(view(1, chosen(1, "installed"), chosen(2, state))) == 1
    assert view(1, chosen(1, "installed"), chosen(2, state)).shown_state(2) == state


def test_a_device_that_never_had_a_deployments_version_is_left_alone() -> None:
    """Such as one that was removed and has enrolled again: what it has may be from anywhere."""
    assert target(view(7, chosen(1, "declined"))) is None
    assert target(view(7, chosen(1), d1="rolled-back")) is None


def test_a_paused_deployment_begins_nothing_but_finishes_and_keeps() -> None:
    assert target(view(0, chosen(1), d1="paused")) is None
    assert target(view(0, chosen(1, "accepted"), d1="paused")) == 1
    assert target(view(1, chosen(1, "installed"), d1="paused")) == 1
    assert target(view(1, chosen(1, "installed"), chosen(2), d2="paused")) == 1
    assert view(1, chosen(1, "installed"), chosen(2), d2="paused").shown_state(2) == "pending"


def test_a_roll_back_returns_to_what_the_device_had_before() -> None:
    back = view(2, chosen(1, "installed"), chosen(2, "installed"), d2="rolled-back")
    assert back.target() == Target(deployment=1, version=1, variant="float32", max_drop=1.0, roll_back=True)
    assert back.shown_state(2) == "returning"
    assert back.shown_state(1) == "pending"
    done = view(1, chosen(1, "installed"), chosen(2, "installed"), d2="rolled-back")
    assert done.shown_state(2) == "returned"
    assert done.shown_state(1) == "installed"


def test_a_roll_back_skips_versions_that_the_device_declined_or_never_had() -> None:
    declined = view(3, chosen(1, "installed"), chosen(2, "declined"), chosen(3, "installed"), d3="rolled-back")
    assert target(declined) == 1
    paused = view(3, chosen(1, "installed"), chosen(2), chosen(3, "installed"), d2="paused", d3="rolled-back")
    assert target(paused) == 1


def test_the_roll_back_of_a_first_version_leaves_none() -> None:
    assert target(view(1, chosen(1, "installed"), d1="rolled-back")) == 0
    assert target(view(0, chosen(1, "installed"), d1="rolled-back")) is None
    declined = view(2, chosen(1, "declined"), chosen(2, "installed"), d2="rolled-back")
    assert target(declined) == 0


@pytest.mark.parametrize(
    ("found", "number", "left"),
    [
        pytest.param(view(1, chosen(1, "installed")), 1, True, id="the first version"),
        pytest.param(view(2, chosen(1, "installed"), chosen(2, "installed")), 2, False, id="a second version"),
        pytest.param(view(2, chosen(1, "installed"), chosen(2, "installed")), 1, True, id="both"),
        pytest.param(view(2, chosen(1, "declined"), chosen(2, "installed")), 2, True, id="it declined the first"),
        pytest.param(view(1, chosen(1, "installed"), d1="rolled-back"), 1, True, id="rolled back, still installed"),
        pytest.param(view(0, chosen(1)), 1, False, id="it never had any"),
        pytest.param(view(7, chosen(1, "declined")), 1, False, id="its version is from elsewhere"),
    ],
)
def test_a_roll_back_tells_which_devices_it_leaves_without_a_model(found: DeviceView, number: int, left: bool) -> None:
    assert found.stranded(number) is left


def test_a_version_that_also_another_deployment_gave_stays() -> None:
    found = DeviceView(
        deployments={
            1: Deployment(name="digits", number=1, version=5),
            2: Deployment(name="digits", number=2, version=5, status="rolled-back"),
        },
        choices=(chosen(2, "installed"), chosen(1, "installed")),
        installed=installed(5),
    )
    aim = found.target()
    assert aim
    assert (aim.deployment, aim.version) == (1, 5)
    assert not differs(aim, found.installed)
    assert found.shown_state(2) == "returned"


def test_a_device_that_lost_its_version_gets_it_again() -> None:
    lost = view(0, chosen(1, "installed"))
    aim = lost.target()
    assert aim
    assert aim.version == 1
    assert differs(aim, lost.installed)
    assert lost.shown_state(1) == "pending"


def test_an_older_deployment_is_superseded() -> None:
    found = view(2, chosen(1, "installed"), chosen(2, "installed"))
    assert [found.shown_state(number) for number in (1, 2)] == ["superseded", "installed"]


def test_variants_of_a_version_differ() -> None:
    aim = Target(deployment=1, version=1, variant="int8")
    assert differs(aim, installed(1))
    assert not differs(aim, installed(1, variant="int8"))
    assert not differs(Target(deployment=1, version=0), installed(0))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("percent", 0),
        ("percent", 100.5),
        ("percent", float("nan")),
        ("version", 0),
        ("variant", "../x"),
        ("max_drop", -1),
        ("name", "../digits"),
        ("name", ""),
    ],
)
def test_wrong_fields_are_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=field.replace("_", "-")):
        Deployment(**{"name": "digits", "version": 1, field: value})
