"""Devices that do not fit a run, next to devices that do: real programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from moonfed.client import Coordinator
from moonfed.experiments.child_processes import run

from .conftest import Federation

pytestmark = pytest.mark.slow

FIT = ("cam-1", "cam-2", "cam-3", "cam-4")
UNFIT = ("cam-5", "cam-6", "cam-7", "cam-8")


def write_samples(path: Path, *, shape: tuple[int, ...] = (8, 8, 1), labels: int = 10) -> str:
    np.savez(path, inputs=np.zeros((20, *shape), np.uint8), labels=np.arange(20) % labels)
    return str(path)


def start_unfit_devices(federation: Federation) -> None:
    """Start devices with other pictures, other labels, no data of the right kind, and too little memory."""
    there = federation.directory
    federation.start_device("cam-5", data=write_samples(there / "large.npz", shape=(9, 9, 1)))
    federation.start_device("cam-6", data=write_samples(there / "labels.npz", labels=12))
    federation.start_device("cam-7", data=write_samples(there / "more-labels.npz", labels=12))
    federation.start_device("cam-8", "--max-memory", "60MB", data=write_samples(there / "fitting.npz"))


def test_devices_that_do_not_fit_are_asked_once_and_cost_no_attempt(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    federation.serve()
    federation.enrol(*FIT, *UNFIT)
    for name in FIT:
        federation.start_device(name, data=str(federation.parts / "device-1.npz"))
    start_unfit_devices(federation)
    federation.until_online(8)
    federation.start_run(make_bundle("fedavg", epochs=1), "r", "--rounds", "3", "--minimum-devices", "4")
    federation.until_finished("r")
    rounds = federation.rounds("r")
    assert [(entry.round, entry.attempt) for entry in rounds] == [(1, 1), (2, 1), (3, 1)]
    assert all(list(entry.counted) == list(FIT) and not entry.missing for entry in rounds)
    for name in UNFIT:
        assert federation.log(name).count("device is not eligible") == 1
        assert "assigned" not in federation.log(name)
        assert federation.log("coordinator").count(f"{name} is not eligible") == 1
    shown = json.loads(run("moonfed-coordinator", "run", "show", "r", *federation.operator, "--json"))
    reasons = {group["reason"]: group["devices"] for group in shown["ineligible"]}
    assert reasons.pop("labels of PATH range from 0 to 11; the model has 10 classes, 0 to 9") == ["cam-6", "cam-7"]
    assert sorted(device for devices in reasons.values() for device in devices) == ["cam-5", "cam-8"]
    text = run("moonfed-coordinator", "run", "show", "r", *federation.operator)
    assert "not eligible: 4\n  2: labels of PATH range from 0 to 11;" in text


def test_a_run_without_eligible_devices_says_so_and_why(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    federation.serve()
    federation.enrol(*UNFIT, "cam-9")
    start_unfit_devices(federation)
    federation.start_device("cam-9", data="")
    federation.until_online(5)
    federation.start_run(make_bundle("fedavg", epochs=1), "r", "--rounds", "3")
    federation.until("r", lambda seen: sum(len(group.devices) for group in seen.ineligible) == 5)
    waiting = federation.until("r", lambda seen: "checking" not in seen.waiting).waiting
    assert waiting.startswith(
        "waiting for 1 more device: 0 eligible, 1 needed; "
        "not eligible: cam-6, cam-7 (labels of PATH range from 0 to 11; the model has 10 classes, 0 to 9); "
    )
    federation.until_log("coordinator", f"run 'r': {waiting}")
    shown = federation.show("r")
    assert (shown.status, shown.eligible, shown.checking) == ("running", 0, 0)
    reasons = {group.reason: list(group.devices) for group in shown.ineligible}
    assert reasons["without data, for inference only"] == ["cam-9"]
    assert not federation.rounds("r")


def test_a_run_names_the_classes_that_no_device_has(federation: Federation, make_bundle: Callable[..., Path]) -> None:
    federation.serve()
    federation.enrol("cam-1", "cam-2", "cam-3")
    bundle = make_bundle("fedavg", epochs=1)
    federation.start_run(bundle, "r", "--minimum-devices", "9")
    federation.start_run(bundle, "silent", "--minimum-devices", "9", "--private-classes")
    for name, labels in (("cam-1", 7), ("cam-2", 9)):
        federation.start_device(name, data=write_samples(federation.directory / f"{name}.npz", labels=labels))
    federation.until("r", lambda seen: list(seen.absent_classes) == ["9"])
    federation.until("silent", lambda seen: seen.eligible == 2)
    text = run("moonfed-coordinator", "run", "show", "r", *federation.operator)
    assert "has samples of: 9\n" in text
    shown = json.loads(run("moonfed-coordinator", "run", "show", "r", *federation.operator, "--json"))
    assert shown["absent_classes"] == ["9"]
    with Coordinator(federation.state / "operator") as client:
        assert (client.run("r").absent_classes, client.run("silent").absent_classes) == (("9",), ())
    federation.start_device("cam-3", data=write_samples(federation.directory / "cam-3.npz"))
    federation.until("r", lambda seen: seen.eligible == 3 and not seen.absent_classes)
