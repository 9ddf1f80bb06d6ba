"""Releases, deployments and their devices as text: problems first, within 80 columns and 40 lines."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import get_args

import pytest

from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import NO_TARGET, TargetSpec, class_target
from moonfed.control.releases import DeployedDevice, DeployedState, Deployment, Release
from moonfed.coordinator.cli.format_release import (
    STATES,
    deployment_line,
    deployment_lines,
    release_details,
    release_lines,
    status_lines,
)
from moonfed.coordinator.cli.layout import LINES
from moonfed.formatting import moment
from tests.support.operator_records import BLOB

WIDTH = 80


def release(version: int = 3) -> Release:
    return Release(
        name="digits",
        version=version,
        created=moment(1_700_000_000),
        operator="ann",
        run="digits-run",
        round=40,
        manifest=BLOB,
        signature=BLOB,
        target=class_target(("cat", "dog")),
        variants={"float32": BLOB},
        score=0.9312,
        samples=1000,
    )


def deployment(number: int = 2, **fields: object) -> Deployment:
    given: dict[str, object] = {
        "name": "digits",
        "number": number,
        "version": 3,
        "variant": "float32",
        "percent": 10.0,
        "max_drop": 1.0,
        "status": "active",
        "created": moment(1_700_000_000),
        "operator": "ann",
        "matching": 50,
        "chosen": 5,
        "states": {"installed": 3, "declined": 1, "pending": 1},
    }
    return Deployment(**(given | fields))  # type: ignore[arg-type]


def device(name: str, state: str = "installed", **fields: object) -> DeployedDevice:
    given: dict[str, object] = {
        "device": name,
        "deployment": 2,
        "version": 3,
        "state": state,
        "installed": 3,
        "reported": moment(time.time() - 7500),
        "online": True,
    }
    return DeployedDevice(**(given | fields))  # type: ignore[arg-type]


def test_a_deployment_is_one_line_with_its_problems_first() -> None:
    assert deployment_line(deployment()) == (
        "deployment 2: version 3 of digits to 5 of 50 devices (10 %), active; 1 declined, 1 pending, 3 installed"
    )
    labelled = deployment(
        labels={"site": "berlin"},
        trusted_labels=True,
        variant="int8",
        states={},
        status="rolled-back",
    )
    assert deployment_line(labelled) == (
        "deployment 2: version 3 of digits (int8) to 5 of 50 devices with trusted site=berlin (10 %), rolled-back"
    )


def test_every_state_has_a_place() -> None:
    assert set(STATES) == set(get_args(DeployedState))


def test_releases_are_listed_and_shown() -> None:
    head, line = release_lines([release()], WIDTH)
    assert head.split() == ["release", "version", "created", "run", "round", "score", "variants"]
    assert line.split()[:2] == ["digits", "3"]
    assert max(map(len, (head, line))) <= WIDTH
    shown = dict(line.split(maxsplit=1) for line in release_details(release()))
    assert shown["created"] == "2023-11-14 22:13:20 UTC by ann"
    assert shown["accuracy"] == "0.9312 on 1,000 samples"
    assert shown["float32"] == "4.20 MB"
    unscored = replace(release(), score=None)
    assert dict(line.split(maxsplit=1) for line in release_details(unscored))["accuracy"] == "-"


def test_the_overview_has_a_line_for_each_release() -> None:
    head, line = deployment_lines([deployment()], WIDTH)
    assert head.split() == ["release", "number", "version", "status", "devices", "states"]
    assert line.split(maxsplit=4) == ["digits", "2", "3", "active", "5 of 50  1 declined, 1 pending, 3 installed"]


def test_devices_with_problems_come_first_with_the_reason() -> None:
    declined = device(
        "cam-9", "declined", installed=2, score=0.61, current_score=0.9, samples=40, reason="0.61 is too low"
    )
    waiting = device("cam-5", "pending", installed=0, reported=None, online=False)
    lines = status_lines([deployment()], [device("cam-1"), waiting, declined])
    assert lines[1].split() == ["device", "seen", "state", "has", "reported", "score", "reason"]
    assert lines[2].split(maxsplit=6) == [
        "cam-9",
        "online",
        "declined",
        "v2",
        "2",
        "h",
        "0.610 from 0.900  0.61 is too low",
    ]
    assert lines[3].split() == ["cam-5", "offline", "pending", "none", "-", "-"]
    assert lines[4].split()[:4] == ["cam-1", "online", "installed", "v3"]


def test_a_long_reason_is_never_cut() -> None:
    reason = "the accuracy of the new version is far too low for this device, " * 4 + "and that is the end"
    fleet = [device("cam-1", "failed", reason="short"), device("cam-2", "declined", reason=reason, score=0.5)]
    narrow = status_lines([deployment()], fleet, WIDTH)
    assert max(map(len, narrow)) <= WIDTH
    first, second, *below = narrow[-6:]
    assert first.split()[0] == "cam-1"
    assert first.endswith("  short")
    assert (second.split()[0], second.split()[-1]) == ("cam-2", "0.500")
    assert " ".join(" ".join(below).split()) == reason
    assert all(line.startswith("  ") for line in below)
    assert status_lines([deployment()], fleet)[-1].endswith(reason)


@pytest.mark.parametrize("devices", [0, 1, 10, 11, 12, 13, 30, 37, 38, 1000])
def test_a_thousand_devices_fit_into_a_terminal(devices: int) -> None:
    reason = "the accuracy of the new version is far too low for this device, " * 3
    fleet = [device(f"camera-of-the-north-gate-{n:04}", "declined", reason=reason, score=0.5) for n in range(devices)]
    history = [deployment(number, states={"declined": devices}) for number in range(1, 30)]
    lines = status_lines(history, fleet, WIDTH)
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    shown = sum("declined" in line and "camera" in line for line in lines)
    assert (shown == devices) == (not lines[-1].endswith("see --all"))
    everything = status_lines(history, fleet)
    assert sum("camera" in line for line in everything) == devices
    assert sum(line.startswith("deployment") for line in everything) == 29


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (class_target(("cat", "dog")), {"predicts": "2 classes", "classes": "cat, dog", "score": "0.9312"}),
        (TargetSpec(kind="labels", names=("red",), shape=(1,)), {"predicts": "1 label", "labels": "red"}),
        (TargetSpec(kind="mask", names=("soil", "crop"), shape=(4, 4)), {"classes": "soil, crop"}),
        (TargetSpec(kind="values", names=("price",), shape=(1,), units=("EUR",)),
         {"predicts": "1 value", "values": "price (EUR)", "score": "0.9312 EUR"}),
        (TargetSpec(kind="values", names=("price", "area"), shape=(2,), units=("EUR", "m²")),
         {"values": "price (EUR), area (m²)", "score": "0.9312"}),
        (NO_TARGET, {"predicts": "no targets"}),
    ],
)  # fmt: skip
def test_a_release_says_what_it_predicts_in_which_units(target: TargetSpec, shown: dict[str, str]) -> None:
    metric = Metric(name="score", maximise=False, share=False, unit=target.unit)
    lines = release_details(replace(release(), target=target, metric=metric))
    found = dict(line.split(maxsplit=1) for line in lines)
    assert {name: found[name].removesuffix(" on 1,000 samples") for name in shown} == shown
    assert ("classes" in found) == (target.kind in ("class", "mask"))
