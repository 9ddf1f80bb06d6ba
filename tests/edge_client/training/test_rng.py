"""Order and draws repeat, and differ by seed, round, device and epoch."""

from __future__ import annotations

import subprocess
import sys

import torch

from moonfed.edge_client.training.local_training import (
    RoundSettings,
)
from moonfed.edge_client.training.rng import epoch_batches, sample_draws
from tests.support.recording import RecordingPlan, numbered, settings, train


def order(chosen: RoundSettings, epoch: int = 1, samples: int = 50) -> list[int]:
    return torch.cat(list(epoch_batches(samples, chosen, epoch))).tolist()


def test_the_order_repeats_and_differs_by_seed_round_device_and_epoch() -> None:
    usual = order(settings())
    assert order(settings()) == usual
    others = [order(settings(seed=2)), order(settings(round=2)), order(settings(device="cam-2")), order(settings(), 2)]
    assert all(other != usual for other in others)
    assert all(sorted(other)[0] == 0 for other in [usual, *others])


def test_the_order_is_the_same_in_another_process() -> None:
    script = (
        "import torch; from moonfed.edge_client.training.rng import *;"
        "s = RoundSettings(training=TrainingSpec(epochs=2, batch_size=4), seed=1, round=1, device='cam-1');"
        "print(torch.cat(list(epoch_batches(50, s, 1))).tolist())"
    )
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(order(settings()))


def test_draws_repeat_and_differ_by_seed_round_device_and_epoch() -> None:
    def draws(**fields: object) -> dict[int, list[float]]:
        plan = RecordingPlan(draws=2)
        train(plan, numbered(8), settings(**fields))
        return plan.draws_by_sample(0, 2)

    usual = draws()
    assert draws() == usual
    for other in (draws(seed=2), draws(round=2), draws(device="cam-2")):
        assert not {tuple(pair) for pair in other.values()} & {tuple(pair) for pair in usual.values()}


def test_draws_are_even_and_not_the_numbers_that_order_the_samples() -> None:
    draws = sample_draws(20_000, 4, settings(), 1)
    counts = torch.histc(draws, bins=10, min=0, max=1)
    assert torch.all((counts - 8000).abs() < 5 * (80_000 * 0.1 * 0.9) ** 0.5)  # five standard deviations
    order = torch.cat(list(epoch_batches(20_000, settings(), 1)))
    assert not torch.equal(draws[:, 0].argsort(), order)
    assert abs(float(torch.corrcoef(torch.stack([draws[:, 0], order.argsort().float()]))[0, 1])) < 0.05


def test_the_plans_own_randomness_repeats_and_differs_by_seed_round_device_and_epoch() -> None:
    """Dropout, for example, does not depend on what the process did before."""

    class Chance(RecordingPlan):
        def step(self, *batch: torch.Tensor) -> torch.Tensor:
            super().step(*batch)
            return torch.rand(())

    def loss(**fields: object) -> float:
        torch.rand(int(torch.randint(1, 9, ())))  # the process' own random state is wherever it is
        return train(Chance(), numbered(8), settings(**({"epochs": 1} | fields))).loss

    usual = loss()
    assert loss() == usual
    assert len({usual, loss(seed=2), loss(round=2), loss(device="cam-2"), loss(epochs=2)}) == 5
