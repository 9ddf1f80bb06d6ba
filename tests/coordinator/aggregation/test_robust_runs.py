"""Faults 12 and 31 over real TLS: devices that train on iris, and some that send arbitrary updates."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_iris

from moonfed.control.codec import from_message, read_event
from moonfed.control.document import document
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Round, Run
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.coordinator.cli.format_run import run_lines
from moonfed.coordinator.cli.watch import WatchedRun
from moonfed.errors import InvalidInput
from moonfed.server_rules.fednova import FedNova
from moonfed.server_rules.mean import MeanRule
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import (
    CLASS_MEANS,
    PROTOTYPES,
    SCAFFOLD,
    Device,
    make_bundle,
    model_bytes,
    model_values,
)

pytestmark = pytest.mark.slow

F64 = npt.NDArray[np.float64]
HONEST, POISONED = [f"cam-{number}" for number in range(6)], ["cam-6", "cam-7"]
ROUNDS = 3
Sent = Mapping[str, Any]  # settings of a run


class Iris:
    """Softmax regression on normalised inputs: head.bias, head.weight, norm.running_mean, norm.running_var."""

    def __init__(self) -> None:
        self.inputs, self.labels = load_iris(return_X_y=True)

    def train(self, model: F64, device: int) -> F64:
        """A device's model after some steps on its own samples."""
        own = np.random.default_rng(device).choice(len(self.labels), 100, replace=False)
        inputs, labels = self.inputs[own], self.labels[own]
        mean, variance = inputs.mean(axis=0), inputs.var(axis=0)
        bias, weight = model[:3].copy(), model[3:15].reshape(3, 4).copy()
        rows, wanted = (inputs - mean) / np.sqrt(variance), np.eye(3)[labels]
        for _ in range(60):
            scores = rows @ weight.T + bias
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            slope = (scores / scores.sum(axis=1, keepdims=True) - wanted) / len(rows)
            bias, weight = bias - slope.sum(axis=0), weight - slope.T @ rows
        return np.concatenate([bias, weight.ravel(), mean, variance])

    def accuracy(self, model: F64) -> float:
        bias, weight, mean, variance = model[:3], model[3:15].reshape(3, 4), model[15:19], model[19:]
        with np.errstate(invalid="ignore"):  # a poisoned variance may be negative
            scores = (self.inputs - mean) / np.sqrt(variance) @ weight.T + bias
        return float((scores.argmax(axis=1) == self.labels).mean())


IRIS = Iris()


def poisoned(begun: F64, honest: F64) -> F64:
    """Return an update with its sign flipped and a thousand times as long."""
    return begun - 1000 * (honest - begun)


def robust_run(fleet: Fleet, robust: Sent) -> tuple[F64, list[control_pb2.Round], list[str]]:
    """Run some rounds with two poisoned devices of eight; return the final model, the rounds and the watched events."""
    devices = [fleet.device(device) for device in (*HONEST, *POISONED)]
    fleet.start("run", ROUNDS, minimum_devices=8, quorum="all", **robust)
    watching = fleet.operator.watch("run")
    next(watching)  # the snapshot: from here on everything is told
    sessions = [device.connect() for device in devices]
    for _ in range(ROUNDS):
        for number, (device, one) in enumerate(zip(devices, sessions, strict=True)):
            work = one.assignment()
            begun = fetched(fleet, work.blobs["model"])
            sent = IRIS.train(begun, number)
            sent = poisoned(begun, sent) if device.name in POISONED else sent
            device.submit(work, model_bytes(sent.astype(np.float32)))
    watched = WatchedRun(time.monotonic)
    lines = [line for message in watching if (event := read_event(message)) for line in watched.apply(event)]
    return fetched(fleet, fleet.operator.run("run").model), fleet.operator.rounds("run"), lines


def fetched(fleet: Fleet, blob: Any) -> F64:
    return model_values(fleet.operator.model(blob)).astype(np.float64)


def honest_model() -> F64:
    """Compute the result of the same rounds without the poisoned devices."""
    model = np.zeros(23)
    for _ in range(ROUNDS):
        model = np.mean([IRIS.train(model, number) for number in range(len(HONEST))], axis=0)
    return model


def test_without_robust_aggregation_two_poisoned_devices_ruin_the_model(fleet: Fleet) -> None:
    assert IRIS.accuracy(honest_model()) > 0.93
    model, rounds, _ = robust_run(fleet, {})
    assert IRIS.accuracy(model) < 0.5
    assert not any(round_.incidents for round_ in rounds)


@pytest.mark.parametrize(
    "robust",
    [
        {"reducer": "median"},
        {"reducer": "trimmed_mean", "reducer_settings": {"byzantine": 2}},
        {"reducer": "multi_krum", "reducer_settings": {"byzantine": 2}},
        {"reducer": "geometric_median"},
        {"clip_factor": 2.0, "weight_cap": 1.5, "reducer": "geometric_median", "reducer_settings": {"byzantine": 2}},
    ],
    ids=["median", "trimmed_mean", "multi_krum", "geometric_median", "the whole chain"],
)
def test_robust_aggregation_keeps_the_model_and_names_the_poisoned_devices(fleet: Fleet, robust: Sent) -> None:
    model, rounds, _ = robust_run(fleet, robust)
    assert IRIS.accuracy(model) >= IRIS.accuracy(honest_model()) - 0.04
    for round_ in rounds:
        assert set(POISONED) <= {incident.device for incident in round_.incidents}
        assert list(round_.counted) == [*HONEST, *POISONED], "they did deliver"


def test_a_norm_clip_bounds_how_far_poisoned_devices_get(fleet: Fleet) -> None:
    model, rounds, _ = robust_run(fleet, {"clip_norm": 2.0})
    assert np.linalg.norm(model[:15]) <= 2.0 * ROUNDS
    assert all(set(POISONED) <= {incident.device for incident in round_.incidents} for round_ in rounds)


def test_an_operator_is_shown_the_settings_and_the_incidents(fleet: Fleet) -> None:
    sent: Sent = {
        "clip_norm": 20.0,
        "reducer": "geometric_median",
        "reducer_settings": {"byzantine": 2},
        "weight_cap": 2.0,
    }
    _, rounds, watched = robust_run(fleet, sent)
    run = fleet.operator.run("run")
    ended = [from_message(Round, one) for one in rounds]
    lines = run_lines(from_message(Run, run), None, ended)
    assert "weight cap 2/N, clip norm 20, reducer geometric_median, reducer settings byzantine=2" in lines[1]
    told = [line for line in lines if line.startswith("round 2, cam-7: the change of its parameters was scaled down")]
    assert len(told) == 1
    incident = {"device": "cam-7", "description": told[0].removeprefix("round 2, cam-7: ")}
    assert incident in document(ended[1])["incidents"]
    found = RunSettings.received(run.settings).to_document()
    assert {name: found[name] for name in sent} == sent
    committed = [line for line in watched if " updates" in line]
    assert len(committed) == ROUNDS
    assert all(line.endswith("; incidents: cam-6, cam-7") for line in committed)


def test_a_restarted_coordinator_keeps_the_robust_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """They are settings of the run, which are stored."""
    directory = tmp_path_factory.mktemp("fleet")
    with fleet_in(directory) as before:
        before.start(weight_cap=1.25, clip_factor=1.5)
    with fleet_in(directory) as after:
        kept = RunSettings.received(after.operator.run("run").settings)
        assert (kept.weight_cap, kept.clip_factor, kept.reducer) == (1.25, 1.5, "mean")


def claim(fleet: Fleet, robust: Sent) -> F64:
    """Run a round of four devices, the last of which claims ten million samples."""
    devices: list[Device] = [fleet.device(f"cam-{number}") for number in range(4)]
    fleet.start(minimum_devices=4, quorum=4, **robust)
    sessions = [device.connect() for device in devices]
    for number, (device, one) in enumerate(zip(devices, sessions, strict=True)):
        claimed, value = (10_000_000, 1.0) if number == 3 else (50, 0.0)
        device.submit(one.assignment(), model_bytes(value), samples=claimed)
    list(fleet.operator.watch("run"))
    return fetched(fleet, fleet.operator.run("run").model)


def test_a_weight_cap_bounds_a_device_that_claims_ten_million_samples(fleet: Fleet) -> None:
    np.testing.assert_allclose(claim(fleet, {"weight_cap": 1.2}), 0.3, rtol=1e-6)
    assert not fleet.operator.rounds("run")[0].incidents, "a large honest device has done nothing"


def test_without_a_weight_cap_that_device_dominates(fleet: Fleet) -> None:
    assert claim(fleet, {}).min() > 0.9999


FEDSSC: Mapping[str, Any] = {
    "method": "fedssc",
    "downlink": {"prototypes": PROTOTYPES},
    "uplink": {"class_means": CLASS_MEANS},
}
ONE_BAD = {"byzantine": "1"}
MEDIAN, KRUM = {"reducer": "median"}, {"reducer": "multi_krum", "reducer_settings": ONE_BAD}


@pytest.mark.parametrize(
    ("bundle", "robust", "devices", "told"),
    [
        (
            {"server_rule": FedNova()},
            {"weight_cap": 1.5},
            9,
            "server_rule is 'fednova'",
        ),
        ({"server_rule": FedNova()}, MEDIAN, 9, "server_rule is 'fednova'"),
        (SCAFFOLD, MEDIAN, 9, "method is 'scaffold'"),
        (SCAFFOLD, {"clip_factor": 2.0}, 9, "method is 'scaffold'"),
        (FEDSSC, {"clip_norm": 2.0}, 9, "clip_norm is 2.0"),
        ({**FEDSSC, "prototype_devices": 3}, KRUM, 9, "prototype_devices is 3"),
        ({}, KRUM, 8, "a round may close with 4 updates; reducer 'multi_krum' needs 5 with byzantine=1"),
        (
            {},
            {"reducer": "median", "reducer_settings": {"byzantine": "1"}},
            2,
            "a round may close with 1 update; reducer 'median' needs 3",
        ),
        ({}, {"reducer": "krum"}, 9, f"reducer is 'krum'; it must be one of {', '.join(REDUCERS)}"),
        ({}, {"weight_cap": 0.3}, 9, "weight_cap is 0.3"),
    ],
)
def test_ineffective_robust_settings_are_rejected_at_the_start(
    fleet: Fleet, bundle: Sent, robust: Sent, devices: int, told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        started(fleet, bundle, robust, devices)


def started(fleet: Fleet, bundle: Sent, robust: Sent, devices: int) -> control_pb2.Run:
    return fleet.start(bundle=make_bundle(**bundle), minimum_devices=devices, **robust)


@pytest.mark.parametrize(
    ("bundle", "robust", "devices"),
    [
        (SCAFFOLD, {"weight_cap": 1.5}, 1),
        (FEDSSC, {"clip_norm": 2.0, "clip_factor": 2.0}, 1),
        (FEDSSC, MEDIAN, 1),
        ({}, KRUM, 9),
        ({"server_rule": MeanRule(weighting="uniform")}, {"weight_cap": 1.5}, 1),
    ],
)
def test_effective_robust_settings_are_accepted(fleet: Fleet, bundle: Sent, robust: Sent, devices: int) -> None:
    assert started(fleet, bundle, robust, devices).status == "running"


def test_an_asynchronous_run_aggregates_robustly_too(fleet: Fleet) -> None:
    """FedBuff's late updates are reduced as if they had started from the newest model."""
    devices = [fleet.device(f"cam-{number}") for number in range(4)]
    fields: dict[str, Any] = {
        "asynchronous": 3,
        "max_staleness": 5,
        "reducer": "median",
        "reducer_settings": {"byzantine": "1"},
        "bundle": make_bundle(server_rule=MeanRule(weighting="uniform")),
    }
    with pytest.raises(InvalidInput, match="a round may close with 2 updates; reducer 'median' needs 3"):
        fleet.start("rejected", 2, minimum_devices=4, **fields)
    fleet.start("run", 2, minimum_devices=4, quorum="all", **fields)
    sessions = [device.connect() for device in devices]
    work = [one.assignment() for one in sessions]
    for number, value in ((0, 2.0), (1, 3.0), (2, 4.0)):
        devices[number].submit(work[number], model_bytes(value))
    again = [sessions[number].assignment() for number in (0, 1)]
    np.testing.assert_array_equal(fetched(fleet, again[0].blobs["model"]), 3.0)
    devices[3].submit(work[3], model_bytes(1e6))  # one model late
    for number, value in ((0, 5.0), (1, 6.0)):
        devices[number].submit(again[number], model_bytes(value))
    list(fleet.operator.watch("run"))
    np.testing.assert_array_equal(fetched(fleet, fleet.operator.run("run").model), 6.0)
    assert {incident.device for incident in fleet.operator.rounds("run")[1].incidents} == {"cam-3"}
