"""Runs with differential privacy over real TLS: draw, clip, noise, charge and refusals."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from moonfed.blobs.schema import TensorSpec
from moonfed.bundle.files import Bundle
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.privacy.accountant import Releases, epsilon
from moonfed.errors import InvalidInput, NotFound
from moonfed.v1 import control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.faults.fleet import bundle_of
from tests.support.coordinator import Device, DeviceSession, ask, make_bundle, model_bytes, model_values
from tests.support.refusals import refused
from tests.support.secret_draw import secret_of

Until = Callable[[Callable[[], bool]], None]
ELEMENTS = 4000
SPECS = (TensorSpec("weight", (ELEMENTS,), "parameter"),)
PRIVATE: dict[str, Any] = {
    "trusting": False,
    "privacy": {"epsilon": 90, "delta": 0.1, "noise_multiplier": 1.0},
    "cohort": 4,
    "population": 4,
    "quorum": 2,
    "clip_norm": 0.5,
}


def bundle() -> Bundle:
    """A bundle without statistics, whose model is 1 everywhere."""
    return bundle_of(ELEMENTS)


def connected(fleet: Fleet, number: int) -> tuple[list[Device], list[DeviceSession]]:
    devices = [fleet.device(f"cam-{index}") for index in range(number)]
    return devices, [device.connect() for device in devices]


def model(fleet: Fleet, run: str = "run") -> np.ndarray[Any, Any]:
    return model_values(fleet.operator.model(fleet.operator.run(run).model), SPECS).astype(np.float64)


def report(fleet: Fleet, run: str = "") -> control_pb2.PrivacyReport:
    found: control_pb2.PrivacyReport = ask(fleet.operator.control.GetPrivacy, control_pb2.GetPrivacyRequest(run=run))
    return found


def test_the_model_is_the_clipped_sum_over_the_expected_cohort_with_noise(fleet: Fleet) -> None:
    devices, sessions = connected(fleet, 4)
    fleet.start(bundle=bundle(), **PRIVATE)
    for device, session, value in zip(devices, sessions, (9.0, 1.0, 1.0, 1.0), strict=True):
        work = session.assignment()
        assert work.clip_norm == 0.5
        device.submit(work, model_bytes(value, SPECS))
    ended = list(fleet.operator.watch("run"))[-1].run
    change = (model(fleet) - 1.0) * 4  # the fixed denominator
    clipped = 0.5 / np.sqrt(ELEMENTS)  # of the first device's change, in each coordinate
    assert abs(change.mean() - clipped) < 5 * 0.5 / np.sqrt(ELEMENTS)
    assert change.std() == pytest.approx(0.5, rel=0.06), "z times the clip; five deviations of 1.1 %"
    spent = ended.privacy
    assert (spent.releases, spent.rounds, spent.clip_norm, spent.budget) == (1, 1, 0.5, 90)
    assert spent.epsilon == epsilon([Releases(sampling_rate=1.0, noise_multiplier=1.0)], 0.1)
    (round_,) = fleet.operator.rounds("run")
    assert not round_.incidents, "whose change was clipped is nobody's business"


def test_a_missing_device_counts_as_zero(fleet: Fleet) -> None:
    devices, sessions = connected(fleet, 4)
    fleet.start(bundle=bundle(), **{**PRIVATE, "privacy": {**PRIVATE["privacy"], "noise_multiplier": 0.2}})
    work = [session.assignment() for session in sessions]
    step = 0.5 / np.sqrt(ELEMENTS)
    for device, one in list(zip(devices, work, strict=True))[:2]:
        device.submit(one, model_bytes(float(np.float32(1 + step * 0.9)), SPECS))
    for device in devices[2:]:
        request = fleet_pb2.DeclineRequest(device=device.name, run="run", round=1, attempt=1, reason="busy")
        ask(device.fleet.Decline, request)
    list(fleet.operator.watch("run"))
    expected = 2 * 0.9 * step / 4  # a mean of the two would be twice as much
    assert abs((model(fleet) - 1.0).mean() - expected) < 5 * 0.2 * 0.5 / 4 / np.sqrt(ELEMENTS)


def test_devices_are_drawn_by_coins_that_nobody_else_can_throw(fleet: Fleet, until: Until) -> None:
    _, sessions = connected(fleet, 8)
    names = [f"cam-{index}" for index in range(8)]
    fleet.start(bundle=bundle(), **{**PRIVATE, "population": 8, "quorum": 1})
    until(lambda: fleet.operator.run("run").HasField("open_round"))
    secret = secret_of(fleet.state, "run")
    attempt = fleet.operator.run("run").open_round.attempt

    def drawn(name: str) -> bool:
        digest = Draw(secret).digest(f"1/{attempt}", name)
        return (int.from_bytes(digest[:8], "big") + 1) / 2**64 <= 0.5

    assert list(fleet.operator.run("run").open_round.cohort) == [name for name in names if drawn(name)]
    assert len(sessions) == 8


def test_the_clip_adapts_by_the_noisy_share_of_devices_within_it(fleet: Fleet) -> None:
    devices, sessions = connected(fleet, 4)
    privacy = {"epsilon": 90, "delta": 0.1, "noise_multiplier": 1.0, "sigma_b": 0.6}
    fleet.start(bundle=bundle(), rounds=2, **{**PRIVATE, "privacy": privacy})
    clips = []
    for _ in (1, 2):
        work = [session.assignment() for session in sessions]
        clips.append({one.clip_norm for one in work})
        for device, one in zip(devices, work, strict=True):
            device.submit(one, model_bytes(9.0, SPECS))
    (first,), (second,) = clips
    assert first == 2 * 0.5, "beyond the clip: a device that clipped to it would count as within it"
    assert second != first
    share = 0.5 - np.log(second / first) / 0.2  # b: of four changes, none is within the clip
    assert abs(share) < 5 * 0.6 / 4
    assert list(fleet.operator.watch("run"))[-1].run.privacy.clip_norm != second / 2


def test_the_ledger_outlives_a_run_and_names_those_without_privacy(fleet: Fleet) -> None:
    devices, sessions = connected(fleet, 4)
    names = ["first", "second"]
    for number, name in enumerate(names, 1):
        fleet.start(name, bundle=bundle(), **PRIVATE)
        for device, session in zip(devices, sessions, strict=True):
            device.submit(session.assignment(), model_bytes(1.0, SPECS))
        list(fleet.operator.watch(name))
        ask(fleet.operator.control.DeleteRun, control_pb2.DeleteRunRequest(run=name))
        found = report(fleet)
        assert [(charge.run, charge.releases) for charge in found.charges] == [(each, 1) for each in names[:number]]
        assert found.epsilon == epsilon([Releases(sampling_rate=1.0, noise_multiplier=1.0, rounds=number)], 0.1)
    fleet.start("other", bundle=make_bundle())
    assert list(report(fleet).runs_without) == ["other"]
    assert list(report(fleet, "first").runs_without) == []
    with refused(NotFound, "run", "nobody"):
        report(fleet, "nobody")
    with refused(InvalidInput, "delta"):
        ask(fleet.operator.control.GetPrivacy, control_pb2.GetPrivacyRequest(delta=1.0))


def test_metrics_that_a_device_sends_nevertheless_are_not_recorded(fleet: Fleet) -> None:
    devices, sessions = connected(fleet, 4)
    fleet.start(bundle=bundle(), **PRIVATE)
    held_out = {"loss": 0.123456, "holdout_accuracy": 0.9, "holdout_samples": 20.0}
    for device, session in zip(devices, sessions, strict=True):
        device.submit(session.assignment(), model_bytes(1.0, SPECS), metrics=held_out)
    ended = list(fleet.operator.watch("run"))[-1].run
    (round_,) = fleet.operator.rounds("run")
    assert (dict(round_.metrics), dict(ended.initial_metrics)) == ({}, {})
    with sqlite3.connect(fleet.state / "coordinator.db") as database:
        assert not [line for line in database.iterdump() if "0.123456" in line]


def test_scores_of_devices_are_refused_or_named_in_the_ledger(fleet: Fleet) -> None:
    devices, sessions = connected(fleet, 4)
    fleet.start(bundle=bundle(), **PRIVATE)
    for device, session in zip(devices, sessions, strict=True):
        device.submit(session.assignment(), model_bytes(1.0, SPECS))
    list(fleet.operator.watch("run"))
    request = control_pb2.EvaluateRunRequest(run="run", deadline_seconds=600)
    with refused(InvalidInput, "without_privacy", False):
        ask(fleet.operator.control.EvaluateRun, request)
    assert not fleet.operator.run("run").privacy.unprotected
    request.without_privacy = True
    for _ in range(2):  # the second one finds the evaluation that the first one began
        ask(fleet.operator.control.EvaluateRun, request)
    assert {session.evaluation().round for session in sessions} == {1}
    assert list(fleet.operator.run("run").privacy.unprotected) == ["evaluation of round 1"]
    assert [charge.what for charge in report(fleet, "run").charges] == ["", "evaluation of round 1"]


def test_a_bundle_with_statistics_starts_no_private_run(fleet: Fleet) -> None:
    with refused(InvalidInput, "model"):
        fleet.start(bundle=make_bundle(), **PRIVATE)
