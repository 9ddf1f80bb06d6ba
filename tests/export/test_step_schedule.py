"""Schedules over the steps of a round, compared with torch.optim.lr_scheduler's rates, and with eager training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.optim import lr_scheduler

from moonfed.edge_client.training.local_training import Samples, train_round
from moonfed.edge_client.training.rng import RoundSettings, epoch_batches
from moonfed.errors import InvalidInput
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.methods.fedprox import FedProx
from moonfed.export.network import Network
from moonfed.export.optimiser import AdamW, Optimiser, Sgd
from moonfed.export.plan_builder import compile_plan, plan_bytes
from moonfed.export.step_schedule import ScheduledRate, read_step_schedule
from moonfed.plan.interface import load_plan
from moonfed.plan.training_spec import TrainingSpec
from moonfed.server_rules.fednova import FedNova
from tests.export.conftest import SMALL_IMAGE, TABLE, batches
from tests.support.eager_reference import cross_entropy, descend, network_with, proximal_term, weights_of
from tests.support.plan_rounds import TOLERANCE, largest_difference, smooth_network
from tests.support.refusals import refused

STEPS, RATE = 40, 0.1
Make = Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]


def warm_up(steps: int) -> Make:
    return lambda optimiser: lr_scheduler.LinearLR(optimiser, 1 / steps, total_iters=steps - 1)


def cosine(steps: int) -> Make:
    return lambda optimiser: lr_scheduler.CosineAnnealingLR(optimiser, steps)


def falls(optimiser: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.StepLR(optimiser, 12, 0.3)


def after_warm_up(steps: int, make: Make) -> Make:
    return lambda optimiser: lr_scheduler.SequentialLR(optimiser, [warm_up(steps)(optimiser), make(optimiser)], [steps])


SCHEDULES: dict[str, Make] = {
    "cosine": cosine(STEPS),
    "step:12:0.3": falls,
    "step:30%:.3": falls,
    "warmup:8": warm_up(8),
    "warmup:20%, cosine": after_warm_up(8, cosine(STEPS - 8)),
    "warmup:4,step:12:0.3": after_warm_up(4, falls),
}


def torchs(make: Make) -> list[float]:
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler, found = make(optimiser), []
    for _ in range(STEPS):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("text", SCHEDULES)
def test_the_rates_are_torchs(text: str) -> None:
    schedule = read_step_schedule(text)
    assert isinstance(schedule, ScheduledRate)
    for _ in range(2):  # each round begins anew
        schedule.begin(STEPS, torch.device("cpu"))
        rates = [schedule.rate(RATE) for _ in range(STEPS)]
        assert [float(rate) for rate in rates if rate is not None] == pytest.approx(torchs(SCHEDULES[text]), rel=1e-6)


def test_a_round_of_one_step_has_a_rate() -> None:
    for text in SCHEDULES:
        schedule = read_step_schedule(text)
        assert isinstance(schedule, ScheduledRate)
        schedule.begin(1, torch.device("cpu"))
        rate = schedule.rate(RATE)
        assert rate is not None
        assert 0 < float(rate) <= RATE * 1.000001


CHOSEN: list[Optimiser] = [
    Sgd(learning_rate=0.05, step_schedule="warmup:3,cosine"),
    AdamW(epsilon=0.001, gradient_clip_norm=0.1, step_schedule="step:7:0.5"),
]


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: chosen.name)
def test_rounds_equal_eager_training(chosen: Optimiser, tmp_path: Path) -> None:
    network, method = smooth_network(), FedProx(mu=0.5)
    inputs, labels = batches(SMALL_IMAGE, 1, 48)[0]
    values = {**chosen.hyperparameters(), **method.hyperparameters()}
    (tmp_path / "plan.pt").write_bytes(plan_bytes(compile_plan(network, method, values, optimiser=chosen, model="me")))
    plan, data = load_plan(tmp_path / "plan.pt", "cpu"), Samples(inputs=inputs, targets=labels)
    training, model = TrainingSpec(epochs=3, batch_size=8, hyperparameters=values), weights_of(network)
    for round_, limit in ((1, None), (2, 15)):  # 18 steps, or as many as the device permits
        settings = RoundSettings(training=training, seed=5, round=round_, device="device", max_steps=limit)
        found = train_round(plan, data, model=model, previous_models=[], received={}, settings=settings)
        local = network_with(network, model).train()
        optimiser = torch_optimiser(chosen, local)
        make = after_warm_up(3, cosine((limit or 18) - 3)) if isinstance(chosen, Sgd) else halves
        scheduler = make(optimiser)
        steps = [(inputs[at], labels[at]) for epoch in (1, 2, 3) for at in epoch_batches(48, settings, epoch)][:limit]
        terms = [cross_entropy, proximal_term(network, model, 0.5)]
        descend(local, steps, values, terms, lambda _, each=scheduler: each.step(), optimiser)  # type: ignore[misc]
        assert largest_difference(found.results["model"], weights_of(local)) < TOLERANCE
        assert found.steps == len(steps)
        model = found.results["model"]


def halves(optimiser: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.StepLR(optimiser, 7, 0.5)


def torch_optimiser(chosen: Optimiser, local: Network) -> torch.optim.Optimizer:
    parameters = list(local.parameters())
    if isinstance(chosen, Sgd):
        return torch.optim.SGD(parameters, chosen.learning_rate, chosen.momentum, weight_decay=chosen.weight_decay)
    optimiser = torch.optim.AdamW(parameters, chosen.learning_rate, eps=0.001, weight_decay=chosen.weight_decay)

    def clip(*_: object) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, chosen.gradient_clip_norm)

    optimiser.register_step_pre_hook(clip)
    return optimiser


@pytest.mark.parametrize(
    "text",
    [
        "", "linear", "cosine:40", "warmup", "warmup:0", "warmup:0%", "warmup:100%", "warmup:1.5", "warmup:5,",
        "cosine,warmup:5", "warmup:5,warmup:5", "step:5", "step:5:1", "step:5:0.0", "step:0:0.5", "constant,cosine",
    ],
)  # fmt: skip
def test_other_shapes_are_refused(text: str) -> None:
    with refused(InvalidInput, "step_schedule", text):
        Sgd(step_schedule=text)


def test_a_bundle_states_its_schedule_and_is_refused_where_steps_must_be_of_one_size() -> None:
    recipe = replace(TABLE, settings={"step_schedule": "cosine"})
    assert build_bundle(recipe).manifest.plan.step_schedule == "cosine"
    for change in ({"method": "scaffold"}, {"server_rule": FedNova()}):
        with refused(InvalidInput, "step_schedule", "cosine"):
            build_bundle(replace(recipe, **change))
