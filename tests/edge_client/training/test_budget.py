"""Partial work under a budget of steps or seconds: as much as fits, counted, and at least one step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from moonfed.blobs.tensors import open_model, split
from moonfed.edge_client.job import Job
from moonfed.edge_client.training.budget import Budget
from moonfed.edge_client.training.local_training import Progress, Samples, train_round
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.export.methods import METHODS
from moonfed.plan.interface import TorchScriptPlan, load_torchscript_plan
from tests.edge_client.conftest import Bundle, new_bundle
from tests.support.clock import Clock
from tests.support.in_process_training import InProcessTraining
from tests.support.recording import RecordingPlan, numbered, settings, train


class SlowPlan(RecordingPlan):
    """A plan whose work advances a clock."""

    def __init__(self, clock: Clock, *, step: float = 1.0, batch_of_references: float = 0.0, **wants: int) -> None:
        super().__init__(**wants)  # type: ignore[arg-type]
        self._clock, self._step, self._references = clock, step, batch_of_references

    def step(
        self, inputs: torch.Tensor, labels: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> torch.Tensor:
        self._clock.now += self._step
        return super().step(inputs, labels, references, draws)

    def references(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        self._clock.now += self._references
        return super().references(inputs, draws)


@pytest.mark.parametrize(
    ("seconds", "steps"),
    [(0.001, 1), (0.99, 1), (1.0, 1), (1.01, 2), (5.0, 5), (5.5, 6), (9.01, 10), (9.9, 10), (100.0, 10), (None, 10)],
)
def test_a_step_begins_as_long_as_there_is_time(seconds: float | None, steps: int) -> None:
    """Ten steps of one second, in two epochs; the budget may end within either."""
    clock, whole, heard = Clock(1000.0), RecordingPlan(), list[Progress]()
    plan = SlowPlan(clock)
    chosen = settings(max_seconds=seconds)
    trained = train(plan, numbered(20), chosen, clock=clock, progress=heard.append)
    train(whole, numbered(20), settings())
    assert trained.steps == steps
    assert plan.batches == whole.batches[:steps]
    assert trained.loss == pytest.approx((1 + steps) / 2)  # of 1, 2, 3, …
    assert [progress.loss for progress in heard if progress.loss is not None] == (
        [(1 + steps) / 2] if steps <= 5 else [3.0, (6 + steps) / 2]
    )


def test_steps_and_seconds_may_both_be_limited() -> None:
    for seconds, max_steps, steps in ((3.5, 7, 4), (7.5, 3, 3)):
        clock = Clock(1000.0)
        chosen = settings(max_seconds=seconds, max_steps=max_steps)
        assert train(SlowPlan(clock), numbered(20), chosen, clock=clock).steps == steps


def test_the_fraction_is_of_the_limit_that_is_reached_first() -> None:
    def fractions(**fields: float) -> list[float]:
        clock, heard = Clock(1000.0), list[Progress]()
        train(SlowPlan(clock), numbered(20), settings(epochs=1, **fields), clock=clock, progress=heard.append)
        return [progress.fraction for progress in heard if progress.loss is None]

    assert fractions(max_seconds=4.0) == [0.25, 0.5, 0.75, 1.0]
    assert fractions(max_seconds=3.5) == pytest.approx([1 / 3.5, 2 / 3.5, 3 / 3.5, 1.0])
    assert fractions(max_seconds=100.0) == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_references_count_towards_the_time() -> None:
    clock, heard = Clock(1000.0), list[Progress]()
    plan = SlowPlan(clock, batch_of_references=2.0, references=1)
    trained = train(plan, numbered(20), settings(max_seconds=12.5), clock=clock, progress=heard.append)
    assert trained.steps == 3  # from 10 s on
    assert [progress.fraction for progress in heard[:2]] == pytest.approx([2 / 12.5, 4 / 12.5])


def test_a_view_is_not_prepared_without_time_left() -> None:
    clock = Clock(1000.0)
    plan = SlowPlan(clock, batch_of_references=1.0, references=1, draws=2)
    trained = train(plan, numbered(20), settings(epochs=8, views=4, max_seconds=10.0), clock=clock)
    assert (trained.steps, plan.calls.count("references")) == (5, 5)


def test_references_that_take_all_of_the_time_are_given_up_for_one_step() -> None:
    clock = Clock(1000.0)
    plan = SlowPlan(clock, batch_of_references=9.0, references=1, draws=2)
    trained = train(plan, numbered(20), settings(epochs=8, views=4, max_seconds=10.0), clock=clock)
    assert (trained.steps, trained.loss) == (1, 1.0)
    assert plan.calls.count("references") == 2  # of five batches
    assert plan.seen_references[0].numel() == 0  # the step computes its own


def test_an_epoch_without_time_after_its_references_has_no_loss() -> None:
    clock, heard = Clock(1000.0), list[Progress]()
    plan = SlowPlan(clock, batch_of_references=1.0, references=1, draws=2)
    chosen = settings(epochs=8, views=4, max_seconds=12.0)  # 5 s of references and 5 s of steps, then references again
    trained = train(plan, numbered(20), chosen, clock=clock, progress=heard.append)
    assert trained.steps == 5
    assert [progress.loss for progress in heard if progress.loss is not None] == [3.0]


def test_seconds_count_from_when_the_job_began() -> None:
    clock = Clock(now=1003.0)
    trained = train(SlowPlan(clock), numbered(20), settings(max_seconds=5.0), clock=clock, started=1000.0)
    assert trained.steps == 2


def test_without_a_time_limit_the_clock_is_not_read() -> None:
    looks: list[int] = []
    budget = Budget(3, None, lambda: looks.append(1) or 0.0)  # type: ignore[func-returns-value]
    looks.clear()
    while budget.allows_step():
        budget.taken += 1
    assert (budget.taken, budget.fraction(), looks) == (3, 1.0, [])


def test_a_plan_that_is_really_slow_ends_in_time() -> None:
    class Sleeper(RecordingPlan):
        def step(self, *batch: torch.Tensor) -> torch.Tensor:
            time.sleep(0.02)
            return super().step(*batch)

    plan, begun = Sleeper(), time.monotonic()
    trained = train(plan, numbered(4000), settings(epochs=3, max_seconds=0.3))
    assert time.monotonic() - begun < 30.0  # not the minute that all its steps take
    assert 1 <= trained.steps == plan.calls.count("step") <= 15
    assert plan.calls[-1] == "end"


@pytest.fixture
def fedprox(tmp_path: Path) -> tuple[Bundle, TorchScriptPlan, list[torch.Tensor]]:
    """Build FedProx that measures the inexactness of its subproblem's solution."""
    found = new_bundle(tmp_path, "fedprox", METHODS["fedprox"](mu=0.1, measure_inexactness=1))
    (tmp_path / "plan.pt").write_bytes(found.plan)
    vector = np.array(open_model(tmp_path / "initial.safetensors", found.manifest.tensors))
    model = [torch.from_numpy(values) for values in split(vector, found.manifest.tensors).values()]
    return found, load_torchscript_plan(tmp_path / "plan.pt", "cpu"), model


def test_partial_work_is_less_exact(fedprox: tuple[Bundle, TorchScriptPlan, list[torch.Tensor]]) -> None:
    """FedProx's gamma of a round that ends early is that of a round planned to be as short, and nearer to 1."""
    bundle, plan, model = fedprox
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, 3, (40,), generator=generator)
    data = Samples(inputs=torch.randn(40, 6, generator=generator) + 3 * torch.eye(6)[labels], targets=labels)

    def gamma(**fields: float) -> tuple[int, float]:
        clock = Clock(1000.0)

        class Slow:
            """The real plan, slowed down by a second in each step."""

            def __getattr__(self, name: str) -> object:
                return getattr(plan, name)

            def step(self, *batch: torch.Tensor) -> torch.Tensor:
                clock.now += 1.0
                return plan.step(*batch)

        chosen = settings(epochs=10, batch_size=8, hyperparameters=bundle.manifest.training.hyperparameters, **fields)
        trained = train_round(
            Slow(), data, model=model, previous_models=[], received={}, settings=chosen, clock=clock  # type: ignore[arg-type]
        )  # fmt: skip
        return trained.steps, trained.metrics["inexactness"]

    whole, short, partial = gamma(), gamma(max_steps=7), gamma(max_seconds=6.5)
    assert (whole[0], short[0], partial[0]) == (50, 7, 7)
    assert partial[1] == short[1]
    assert 0 < whole[1] < partial[1] < 1.5


def test_reading_the_data_counts_towards_the_time_and_the_steps_are_stored(
    new_job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "data_slow_to_read.py").write_text(
        "import time, numpy as np\n"
        "def load(spec, classes):\n"
        "    time.sleep(0.5)\n"
        "    return np.zeros((40, 6), np.float32), [0, 1, 2, 0] * 10\n"
    )
    data = "data_slow_to_read:load"
    worker = WorkerSettings(state=str(tmp_path), device="cam-1", data=data, accelerator="cpu", holdout=0.0)
    stored = InProcessTraining(worker).train(new_job(max_seconds=0.4, epochs=50))
    assert stored.update.steps == 1
    assert json.loads((stored.directory / "update.json").read_text())["steps"] == 1


def test_the_time_before_the_worker_started_counts(
    new_job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "quick_data.py").write_text(
        "import numpy as np\ndef load(spec, classes):\n    return np.zeros((40, 6), np.float32), [0, 1, 2, 0] * 10\n"
    )
    worker = WorkerSettings(state=str(tmp_path), device="cam-1", data="quick_data:load", accelerator="cpu", holdout=0.0)
    trainer = InProcessTraining(worker)
    late = trainer.train(new_job(max_seconds=600.0, began=time.monotonic() - 600.0, epochs=5))
    assert late.update.steps == 1
    in_time = trainer.train(new_job(round=2, max_seconds=600.0, began=time.monotonic(), epochs=5))
    assert in_time.update.steps > 1
