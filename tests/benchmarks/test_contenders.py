"""The sides of a comparison do the same work; otherwise their ratio would mean nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from benchmarks.comparison import Comparison
from benchmarks.contenders import (
    EAGER_FEDAVG,
    EAGER_MOON,
    PLAN_FEDAVG,
    PLAN_MOON,
    PLAN_MOON_EACH,
    SAMPLE,
    Contender,
    Workload,
    alternate,
    new_round,
    random_samples,
)
from benchmarks.eager import BATCH, train_eagerly
from moonfed.bundle.target import class_target
from moonfed.edge_client.training.local_training import Trained
from moonfed.export.model_zoo import build_network
from moonfed.export.network import exchanged_tensors

pytestmark = pytest.mark.slow

EPOCHS = 3


def trained_by(contender: Contender, samples: int = BATCH) -> list[torch.Tensor]:
    found = new_round(contender, Workload(model="cnn", accelerator="cpu", samples=samples))(EPOCHS)
    result: list[torch.Tensor] = found.results["model"] if isinstance(found, Trained) else found  # type: ignore[assignment]
    return result


def distance(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


# With one batch in an epoch, the contenders' different orders of the samples make no difference.
@pytest.mark.parametrize(
    ("plan", "eager"),
    [
        pytest.param(PLAN_FEDAVG, EAGER_FEDAVG, id="fedavg"),
        pytest.param(PLAN_MOON, EAGER_MOON, id="moon with cached references"),
        pytest.param(PLAN_MOON_EACH, EAGER_MOON, id="moon with references in each step"),
    ],
)
def test_eager_loop_and_plan_train_the_same_model(plan: Contender, eager: Contender) -> None:
    network = build_network("cnn", SAMPLE, class_target(10))
    before = [tensor.detach().clone() for tensor in exchanged_tensors(network).values()]
    ours, theirs = trained_by(plan), trained_by(eager)
    assert distance(theirs, before) > 1e-3
    assert distance(ours, theirs) < 1e-6


def test_moon_is_not_fedavg() -> None:
    assert distance(trained_by(EAGER_MOON), trained_by(EAGER_FEDAVG)) > 1e-5


def test_the_eager_loop_trains_the_same_in_channels_last() -> None:
    last = replace(EAGER_MOON, memory_format="channels-last")
    assert distance(trained_by(last), trained_by(EAGER_MOON)) < 1e-6


def test_the_eager_loop_drops_the_last_partial_batch() -> None:
    """Compare the numbers of steps: samples beyond the last whole batch get none."""
    data, network = random_samples(BATCH + 9), build_network("cnn", SAMPLE, class_target(10))
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    handle = register_optimizer_step_post_hook(count)
    try:
        train_eagerly(network, None, data.inputs, data.targets, epochs=2)
    finally:
        handle.remove()
    assert steps == 2


def test_contenders_alternate_after_an_untimed_warm_up() -> None:
    calls: list[tuple[str, int]] = []

    def recorded(name: str) -> object:
        return lambda epochs: calls.append((name, epochs))

    one, two = replace(PLAN_FEDAVG, name="one"), replace(PLAN_FEDAVG, name="two")
    rounds: Mapping[Contender, object] = {one: recorded("one"), two: recorded("two")}
    seconds = alternate(rounds, Workload(model="cnn", accelerator="cpu", samples=64, epochs=4), turns=2)  # type: ignore[arg-type]
    assert calls == [("one", 1), ("two", 1), ("one", 4), ("two", 4), ("two", 4), ("one", 4)]
    assert {contender.name: len(times) for contender, times in seconds.items()} == {"one": 2, "two": 2}


def test_a_ratio_is_the_median_of_the_turns_ratios() -> None:
    work = Workload(model="cnn", accelerator="cpu", samples=640, epochs=10)
    found = Comparison(work, {PLAN_MOON: [1.1, 8.8, 3.0], PLAN_FEDAVG: [1.0, 8.0, 1.0]})  # ratios 1.1, 1.1, 3.0
    assert found.ratio(PLAN_MOON, PLAN_FEDAVG) == pytest.approx(1.1)
    times = found.times()
    assert [figure.name for figure in times] == ["CNN: plan MOON, references cached", "CNN: plan FedAvg"]
    # Medians of 3 s and 1 s, in 10 epochs of 10 steps.
    assert [figure.value for figure in times] == pytest.approx([30.0, 10.0])
