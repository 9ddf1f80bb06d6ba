"""Schedules over rounds, compared with torch.optim.lr_scheduler, whose epochs are our rounds less one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.optim import lr_scheduler

from moonfed.bundle.manifest import Manifest
from moonfed.errors import InvalidInput
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.schedule import read_schedule, read_schedules
from moonfed.plan.training_spec import TrainingSpec
from tests.export.conftest import TABLE
from tests.support.aggregation_rounds import make_manifest
from tests.support.refusals import refused

ROUNDS = 40


def ours(text: str, rounds: int = ROUNDS) -> list[float]:
    """Return the learning rate of each round as devices get it."""
    training = TrainingSpec(epochs=1, batch_size=8, hyperparameters={"learning_rate": 0.1})
    manifest: Manifest = make_manifest(
        training=training, schedules={"learning_rate": read_schedule("learning_rate", text, 0.1)}
    )
    return [manifest.training_at(round_).hyperparameters["learning_rate"] for round_ in range(1, rounds + 1)]


def torchs(*parts: tuple[int, object], rounds: int = ROUNDS) -> list[float]:
    """Return the learning rates of schedulers, each from an epoch on."""
    found = []
    for (begin, make), (end, _) in pairwise([*parts, (rounds, None)]):
        optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        scheduler = make(optimiser)  # type: ignore[operator]
        for _ in range(begin, end):
            found.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            scheduler.step()
    return found


def cosine(length: int) -> object:
    return lambda optimiser: lr_scheduler.CosineAnnealingLR(optimiser, length)


def steps(optimiser: torch.optim.Optimizer) -> object:
    return lr_scheduler.StepLR(optimiser, 15, 0.1)


def warm_up(optimiser: torch.optim.Optimizer) -> object:
    return lr_scheduler.LinearLR(optimiser, 0.2, total_iters=4)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("cosine:40", [(0, cosine(40))]),
        ("step:15:0.1", [(0, steps)]),
        ("warmup:5", [(0, warm_up)]),
        ("warmup:5, cosine:40", [(0, warm_up), (5, cosine(35))]),
        ("warmup:5,step:15:0.1", [(0, warm_up), (5, steps)]),
    ],
)
def test_a_schedule_is_torchs(text: str, parts: list[tuple[int, object]]) -> None:
    assert ours(text) == pytest.approx(torchs(*parts), rel=1e-6)


def test_a_long_cosine_is_linear_in_pieces_and_close_to_torchs() -> None:
    assert len(read_schedule("learning_rate", "cosine:2000", 0.1)) <= 201
    assert ours("cosine:2000", 2000) == pytest.approx(torchs((0, cosine(2000)), rounds=2000), abs=1e-5)


def test_a_value_stays_after_the_last_round_and_steps_end_when_they_are_negligible() -> None:
    assert ours("cosine:4")[3:] == [pytest.approx(0.1 * 0.146446609)] * 37
    assert read_schedule("learning_rate", "step:1:0.1", 1.0)[-1][1] >= 1e-6
    assert ours("step:3:1e-7")[2:4] == [0.1, pytest.approx(1e-8)], "but the first is never left out"
    assert ours("warmup:5,step:2:0.5")[4:8] == [0.1, 0.1, 0.1, 0.05], "steps begin after the warm-up"


@pytest.mark.parametrize(
    "text",
    [
        "cosine", "cosine:0", "cosine:10001", "step:3", "step:3:1", "step:3:nan", "linear:3", "warmup:5,warmup:6",
        "cosine:5,warmup:3", "warmup:5,cosine:5", "", "warmup:5,,cosine:9",
    ],
)  # fmt: skip
def test_other_shapes_are_refused(text: str) -> None:
    with refused(InvalidInput, "schedule of learning_rate", text):
        read_schedule("learning_rate", text, 0.1)


@pytest.mark.parametrize("key", ["speed", "theta"])
def test_only_hyperparameters_that_the_method_does_not_schedule_have_schedules(key: str) -> None:
    with refused(InvalidInput, "schedule", f"{key}=cosine:3"):
        read_schedules({key: "cosine:3"}, {"learning_rate": 0.1, "theta": 1.0}, {"theta": ((1, 1.0),)})


def test_a_bundle_has_its_schedules() -> None:
    recipe = replace(TABLE, optimiser="adam", schedules={"learning_rate": "warmup:2,cosine:9", "beta1": "step:5:0.5"})
    manifest = build_bundle(recipe).manifest
    rates = [manifest.training_at(round_).hyperparameters for round_ in (1, 2, 6)]
    assert [rate["learning_rate"] for rate in rates] == pytest.approx([0.0005, 0.001, 0.001 * 0.6112604669], rel=1e-6)
    assert [rate["beta1"] for rate in rates] == [0.9, 0.9, 0.45]
