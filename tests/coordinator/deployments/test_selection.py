"""The devices that a deployment chooses: exact, stable, by labels."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonfed.coordinator.deployments.selection import Candidate, choose, choosing, matching, rank
from tests.support.releases import deployment

FLEET = [f"cam-{number}" for number in range(50)]


@pytest.mark.parametrize(("percent", "number"), [(10, 5), (0.1, 1), (33, 17), (50, 25), (99, 50), (100, 50)])
def test_a_share_is_exact_and_rounded_up(percent: float, number: int) -> None:
    assert len(choose(deployment(percent=percent), FLEET, [])) == number


def test_no_device_no_choice() -> None:
    assert choose(deployment(percent=10), [], []) == []


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.sets(st.sampled_from(FLEET)), st.sets(st.sampled_from(FLEET)))
def test_widening_and_new_devices_only_add(first: float, second: float, known: set[str], joined: set[str]) -> None:
    narrow, wide = deployment(percent=min(first, second)), deployment(percent=max(first, second))
    before = set(choose(narrow, known, []))
    added = choose(wide, known | joined, before)
    assert not before & set(added)
    wanted = math.ceil(len(known | joined) * wide.percent / 100 - 1e-9)
    assert len(before | set(added)) == wanted >= len(before)


@given(st.floats(0.01, 100))
def test_every_version_begins_with_the_same_devices(percent: float) -> None:
    chosen = choose(deployment(1, 1, percent=percent), FLEET, [])
    assert choose(deployment(2, 2, percent=percent), FLEET, []) == chosen
    assert chosen == sorted(FLEET, key=lambda device: rank("digits", device))[: len(chosen)]


def test_another_release_begins_with_other_devices() -> None:
    order = sorted(FLEET, key=lambda device: rank("digits", device))
    assert order != sorted(FLEET, key=lambda device: rank("faces", device))
    assert rank("ab", "c") != rank("a", "bc")


def test_chosen_devices_that_no_longer_match_are_neither_counted_nor_chosen_again() -> None:
    half = deployment(percent=50)
    assert len(choose(half, FLEET[:10], FLEET[10:20])) == 5
    assert choose(half, FLEET[:10], FLEET[:5]) == []
    assert choose(half, FLEET[:10], FLEET[:8]) == []


def test_operators_labels_override_those_of_devices_and_may_be_the_only_ones_that_count() -> None:
    fleet = [
        Candidate(device="own", labels={"site": "berlin"}),
        Candidate(device="trusted", operator_labels={"site": "berlin"}),
        Candidate(device="overridden", labels={"site": "berlin"}, operator_labels={"site": "rome"}),
        Candidate(device="none"),
    ]
    berlin = {"site": "berlin"}
    assert matching({}, fleet, trusted=False) == ["own", "trusted", "overridden", "none"]
    assert matching(berlin, fleet, trusted=False) == ["own", "trusted"]
    assert matching(berlin, fleet, trusted=True) == ["trusted"]


def test_deployments_below_one_to_all_devices_choose_no_more() -> None:
    one, two = deployment(1, 1), deployment(2, 2, percent=50)
    three, four = deployment(3, 3), deployment(4, 4, labels={"site": "berlin"})
    assert [found.number for found in choosing([one, two, three, four])] == [4, 3]
    assert [found.number for found in choosing([one, two, replace(three, status="rolled-back"), four])] == [4, 2, 1]
    assert [found.number for found in choosing([one, two, replace(three, status="paused")])] == [2, 1]
