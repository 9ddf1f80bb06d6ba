"""Changes of deployments, and of choices by reports and inventories."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from moonfed.coordinator.deployments import transitions
from moonfed.coordinator.deployments.state import Choice
from moonfed.errors import InvalidInput, WrongState
from tests.support.refusals import refused
from tests.support.releases import chosen, deployment, report, view

NOW = 5.0


def test_a_deployment_is_widened_paused_resumed_and_rolled_back() -> None:
    narrow = deployment(percent=10)
    assert transitions.widen(narrow, 50).percent == 50
    assert transitions.widen(narrow, 10) == narrow
    paused = transitions.pause(narrow)
    assert paused.status == "paused"
    assert transitions.pause(paused) == paused
    assert transitions.widen(paused, 20).status == "paused"
    assert transitions.resume(paused) == narrow
    assert transitions.roll_back(paused).status == "rolled-back"


def test_a_deployment_is_never_narrowed() -> None:
    with refused(InvalidInput, "percent", 5):
        transitions.widen(deployment(percent=10), 5)


def test_the_share_that_an_error_names_is_accepted() -> None:
    third = deployment(percent=100 / 3)
    with refused(InvalidInput, "percent", 33.3333) as caught:
        transitions.widen(third, 33.3333)
    named = re.findall(r"at least ([\d.]+)", str(caught.value))
    assert transitions.widen(third, float(named[0])) == third


def test_nothing_follows_a_roll_back() -> None:
    ended = transitions.roll_back(deployment())
    assert transitions.roll_back(ended) == ended
    for change in (transitions.pause, transitions.resume, lambda found: transitions.widen(found, 100)):
        with pytest.raises(WrongState, match="was rolled back"):
            change(ended)


def after(choice: Choice, outcome: str, has: int) -> Choice:
    made = report("cam-1", 2, 2, outcome, has, reason="why", score=0.5, samples=9, fingerprint="f")  # type: ignore[arg-type]
    return transitions.after_report(view(1, chosen(1, "installed"), choice), made, NOW).choices[0]


def test_a_report_is_recorded_with_its_scores() -> None:
    found = after(chosen(2), "declined", 1)
    assert found == Choice(
        deployment=2, device="cam-1", state="declined", reason="why", score=0.5, samples=9, fingerprint="f", time=NOW
    )


def test_only_an_installed_version_can_be_returned_to() -> None:
    assert after(chosen(2), "installed", 2).had
    assert not after(chosen(2), "accepted", 1).had
    had = chosen(2, "installed")
    assert after(had, "accepted", 1).had
    assert after(had, "failed", 1).had  # it tries again when it connects
    assert not after(had, "declined", 1).had
    assert not after(had, "fell-back", 1).had


def test_a_report_on_another_version_changes_what_is_installed_only() -> None:
    before = view(1, chosen(1, "installed"), chosen(2))
    found = transitions.after_report(before, report("cam-1", 2, 7, "installed", 7), NOW)
    assert found.choices == before.choices
    assert found.installed.version == 7


def test_an_inventory_replaces_a_report_that_was_lost() -> None:
    for state in ("pending", "accepted"):
        found = transitions.connected(view(2, chosen(2, state)), "f", NOW).choices[0]
        assert (found.state, found.had, found.time) == ("installed", True, NOW)
    assert transitions.connected(view(1, chosen(2)), "f", NOW).choices[0].state == "pending"


@pytest.mark.parametrize("state", ["declined", "failed", "fell-back"])
def test_a_device_decides_again_only_with_another_fingerprint(state: str) -> None:
    settled = chosen(1, state, fingerprint="f")
    assert transitions.connected(view(0, settled), "f", NOW).choices[0] == settled
    assert transitions.connected(view(0, settled), "g", NOW).choices[0] == replace(settled, state="pending")
