"""The list of devices as text."""

from __future__ import annotations

import time

import pytest

from moonfed.control.devices import Device
from moonfed.coordinator.cli.devices import HEADS, device_lines
from moonfed.formatting import moment
from tests.support.operator_records import activity, device, result

WIDTH = 80


def cells(shown: Device) -> dict[str, str]:
    """Return the line of one device, by column."""
    head, line, _ = device_lines([shown])
    starts = [head.index(name) for name in HEADS]
    ends = [*starts[1:], None]
    return {name: line[start:end].strip() for name, start, end in zip(HEADS, starts, ends, strict=True)}


def test_a_device_at_work() -> None:
    working = [activity("digits", 0.456), activity("other", 0.0)]
    shown = cells(device(online=True, release="0.2", rounds=1200, activity=working, last_result=result("counted")))
    assert shown == {
        "device": "cam-1",
        "seen": "online",
        "activity": "digits 13 46% +1",
        "release": "0.2",
        "rounds": "1,200",
        "last result": "digits 12 counted",
    }


def test_a_device_without_work_is_idle_and_one_that_has_left_shows_since_when() -> None:
    assert cells(device(online=True))["activity"] == "idle"
    assert cells(device(platform={"inference_only": "yes"}))["activity"] == "inference only"
    shown = cells(device(last_seen=moment(time.time() - 7500), last_result=result("declined", "the disk is full")))
    assert (shown["seen"], shown["activity"]) == ("2 h", "-")
    assert shown["last result"] == "digits 12 declined: the disk is full"
    assert cells(device(revoked=moment(1e9), last_seen=moment(1e9)))["seen"] == "revoked"
    assert set(list(cells(device()).values())[1:]) == {"-", "0"}


def test_a_shared_identity_is_shown_with_its_addresses_and_the_remedy() -> None:
    devices = [device(f"cam-{number}", online=True, shared_by=["10.0.0.1", "10.0.0.2"]) for number in range(5)]
    lines = device_lines(devices, WIDTH)
    assert lines[1].split()[:2] == ["cam-0", "shared"]
    assert max(map(len, lines)) <= WIDTH
    told = " ".join(" ".join(lines).split())
    assert "identity of cam-2 in turns, at 10.0.0.1 and 10.0.0.2" in told
    assert "moonfed-coordinator device revoke cam-2" in told
    assert "revoke cam-3" not in told, "three are named"
    assert "so do those of 2 more devices" in told


def test_a_device_that_was_asked_about_shows_why_it_is_ineligible() -> None:
    shown = cells(device(online=True, ineligible="labels must be 0 to 9", last_result=result("counted")))
    assert shown["last result"] == "ineligible: labels must be 0 to 9"


@pytest.mark.parametrize("number", [0, 1, 36, 37, 38, 39, 1000])
def test_a_screen_has_at_most_40_lines_of_80_columns(number: int) -> None:
    devices = [
        device(
            f"a-device-with-a-very-long-name-{each:04}",
            online=True,
            release=f"0.{each % 5}",
            activity=[activity("a-run-with-a-very-long-name", 0.5)],
            last_result=result("declined", "a reason that is much longer than what is left of a line " * 3),
        )
        for each in range(number)
    ]
    lines = device_lines(devices, WIDTH)
    assert len(lines) <= 40
    assert all(len(line) <= WIDTH for line in lines)
    shown = sum(line.startswith("a-device") for line in lines)
    more = [line for line in lines if line.startswith("and ")]
    assert shown == number or more == [
        f"and {number - shown:,} more devices: see --all, or choose with --label or --online"
    ]
    assert len(device_lines(devices)) >= number + 1, "everything is shown without a width"


def test_totals_count_all_devices_and_name_the_releases() -> None:
    devices = [
        *(device(f"a{each}", online=True, release="0.2", activity=[activity("r", 0)]) for each in range(3)),
        *(device(f"b{each}", online=True, release="0.1") for each in range(2)),
        device("c", release="0.1"),
        device("d", revoked=moment(1e9)),
    ]
    totals, releases = device_lines(devices)[-2:]
    assert totals == "7 devices: 5 online (3 training, 2 idle), 1 offline, 1 revoked"
    assert releases == "releases: 0.2 on 3, 0.1 on 3"
    assert device_lines([device()]) == [
        "device  seen  activity  release  rounds  last result",
        "cam-1   -     -         -        0       -",
        "1 device: 0 online (0 training, 0 idle), 1 offline",
    ]
