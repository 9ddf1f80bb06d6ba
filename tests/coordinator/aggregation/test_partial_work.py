"""Devices that end local training early, within a budget: weights of their updates under each server rule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.blobs.store import ref_of_file
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.fleet.assignment import Assignment
from moonfed.server_rules.fedadam import FedAdam
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.fednova import FedNova
from moonfed.server_rules.mean import MeanRule
from moonfed.server_rules.server_rule import ServerRule
from tests.support.aggregation_rounds import momentum_of
from tests.support.coordinator import PARAMETERS, SCAFFOLD, SIZE, make_bundle, model_bytes, model_values
from tests.support.in_process_coordinator import NAMES, device_info, opened, play, started, watched

F64 = npt.NDArray[np.float64]
SAMPLES = np.array([10, 20, 30])
STEPS = [[40, 40, 7], [40, 1, 33]]  # by round and device; 40 were planned
RHO = 0.9  # momentum of local training
TRAINED = np.arange(SIZE) < 15  # parameters: 3 of head.bias, 3 * 4 of head.weight; the rest are statistics


def models_of(round_: int) -> F64:
    """Return the devices' updates [device, element], rounded as a float32 file rounds them."""
    return np.random.default_rng(round_).uniform(1, 2, (3, SIZE)).astype(np.float32).astype(np.float64)


def changes_of(round_: int) -> F64:
    """Return the devices' changes of SCAFFOLD's variate [device, parameter]."""
    return np.random.default_rng([round_, 1]).normal(size=(3, 15)).astype(np.float32).astype(np.float64)


def distance(steps: int) -> float:
    """Simulate the distance that SGD with momentum covers under a constant gradient of 1 at learning rate 1."""
    velocity = gone = 0.0
    for _ in range(steps):
        velocity = RHO * velocity + 1.0
        gone += velocity
    return gone


def mean(p: F64) -> F64:
    """Two rounds of FedAvg: the second's mean, whatever the first was."""
    return p @ models_of(2)


def momentum(p: F64) -> F64:
    """w_2 = w_1 + β·v_1 + Δ_2, with v_1 = Δ_1 and so w_1 the first mean."""
    first, second = p @ models_of(1), p @ models_of(2)
    return first + 0.7 * (first - 0.5) + (second - first)


def adam(p: F64) -> F64:
    w, m, v = np.full(SIZE, 0.5), np.zeros(SIZE), np.full(SIZE, 1e-6)
    for round_ in (1, 2):
        delta = p @ models_of(round_) - w
        m, v = 0.9 * m + 0.1 * delta, 0.99 * v + 0.01 * delta**2
        w = w + 0.1 * m / (np.sqrt(v) + 1e-3)
    return w


def nova(p: F64) -> F64:
    w = np.full(SIZE, 0.5)
    for round_, steps in enumerate(STEPS, 1):
        a = np.array([distance(number) for number in steps])
        w = w - (p @ a) * (p / a @ (w - models_of(round_)))
    return w


def trained(work: Assignment, device: int, directory: Path) -> tuple[UpdateHeader, dict[str, Path]]:
    contents = {
        "model": model_bytes(models_of(work.id.round)[device]),
        "variate_change": model_bytes(changes_of(work.id.round)[device], PARAMETERS),
    }
    files = {role: directory / f"{device}-{role}" for role in contents}
    for role, content in contents.items():
        files[role].write_bytes(content)
    header = UpdateHeader(
        id=work.id,
        device=NAMES[device],
        blobs={role: ref_of_file(file) for role, file in files.items()},
        samples=int(SAMPLES[device]),
        steps=STEPS[work.id.round - 1][device],
        metrics={"loss": float(device)},
    )
    return header, files


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (MeanRule(), mean),
        (MeanRule(weighting="uniform"), mean),
        (FedAvgM(server_momentum=0.7), momentum),
        (FedAdam(), adam),
        (FedNova(), nova),
        (FedNova(weighting="uniform"), nova),
    ],
)
def test_only_fednova_uses_steps_and_samples_weigh_as_before(
    tmp_path: Path, rule: ServerRule, expected: Callable[[F64], F64]
) -> None:
    bundle = make_bundle(start=0.5, server_rule=rule, **{**SCAFFOLD, "training": momentum_of(RHO)})

    async def scenario() -> None:
        async with opened(tmp_path / "state") as coordinator, AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(coordinator.devices.connect(device_info(name))) for name in NAMES
            ]
            await started(coordinator, bundle)
            for round_ in (1, 2):
                for device, session in enumerate(sessions):
                    work = await anext(session.assignments())
                    await coordinator.updates.submit_files(*trained(work, device, tmp_path))
                await watched(coordinator, "round_committed", round_)
            reports = coordinator.storage.store.reports.of_attempt(work.id)
            assert [report.steps for report in reports] == STEPS[1]
            newest = coordinator.storage.store.latest_round("run", "committed")
            assert newest
            assert newest.metrics == {"train_loss": pytest.approx((0 * 10 + 1 * 20 + 2 * 30) / 60)}
            files = {role: coordinator.storage.blobs.read(ref) for role, ref in newest.blobs.items()}
        p = SAMPLES / 60 if rule.weighting == "samples" else np.full(3, 1 / 3)
        wanted = np.where(TRAINED, expected(p), p @ models_of(2))
        np.testing.assert_allclose(model_values(files["model"]), wanted, rtol=1e-5, atol=1e-6)
        variate = (changes_of(1) + changes_of(2)).mean(axis=0)  # all three belong to the run, so |S|/N is 1
        np.testing.assert_allclose(model_values(files["variate"], PARAMETERS), variate, rtol=1e-5, atol=1e-6)

    play(scenario())


def test_the_case_distinguishes_fednova_from_the_mean() -> None:
    """If the steps were ignored, FedNova's result would differ by far more than the test above allows."""
    p = SAMPLES / 60
    assert np.abs(nova(p) - mean(p))[TRAINED].min() > 1e-2
