"""The local loop: which samples in which order, references once, and what a round returns."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from edge_client.training import (
    Progress,
    RoundSettings,
    Samples,
    Stopped,
    compute_references,
    epoch_batches,
    evaluate,
    train_round,
)
from moonfed.errors import InvalidInput
from moonfed.plan import TorchScriptPlan, load_plan
from moonfed.tensors import open_model, split
from tests.edge_client.conftest import CLASSES, Bundle


class RecordingPlan:
    """A plan that learns nothing and remembers what it was asked. A sample's input is its own number."""

    def __init__(self, references: int = 0) -> None:
        self.wanted = references
        self.calls: list[str] = []
        self.batches: list[list[int]] = []
        self.seen_references: list[torch.Tensor] = []
        self.began: tuple[object, ...] = ()

    def begin_round(
        self,
        model: Sequence[torch.Tensor],
        previous_models: Sequence[Sequence[torch.Tensor]],
        hyperparameters: Mapping[str, float],
    ) -> None:
        self.calls.append("begin")
        self.began = (model, previous_models, hyperparameters)

    def reference_count(self) -> int:
        return self.wanted

    def references(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls.append("references")
        return inputs.reshape(-1, 1, 1).repeat(1, self.wanted, 3)

    def step(self, inputs: torch.Tensor, labels: torch.Tensor, references: torch.Tensor) -> torch.Tensor:
        self.calls.append("step")
        self.batches.append(inputs.flatten().int().tolist())
        self.seen_references.append(references)
        return torch.tensor(float(len(self.batches)))

    def end_round(self) -> list[torch.Tensor]:
        self.calls.append("end")
        return [torch.ones(1)]

    def evaluate(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls.append("evaluate")
        return torch.tensor([2.0 * len(labels), 1.0])

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        raise AssertionError("local training predicts nothing")


def numbered(count: int) -> Samples:
    return Samples(inputs=torch.arange(count).float().reshape(-1, 1), labels=torch.zeros(count, dtype=torch.int64))


def settings(**fields: object) -> RoundSettings:
    usual: dict[str, object] = {
        "epochs": 2,
        "batch_size": 4,
        "hyperparameters": {"learning_rate": 0.1},
        "seed": 1,
        "round": 1,
        "device": "cam-1",
    }
    return RoundSettings(**(usual | fields))  # type: ignore[arg-type]


def train(plan: RecordingPlan, data: Samples, chosen: RoundSettings, **options: object) -> object:
    return train_round(plan, data, model=[], previous_models=[], settings=chosen, **options)  # type: ignore[arg-type]


def order(chosen: RoundSettings, epoch: int = 1, samples: int = 50) -> list[int]:
    return torch.cat(list(epoch_batches(samples, chosen, epoch))).tolist()


def test_every_epoch_shows_each_sample_once_but_for_the_last_partial_batch() -> None:
    plan = RecordingPlan()
    trained = train(plan, numbered(10), settings())
    assert [len(batch) for batch in plan.batches] == [4, 4, 4, 4]
    first, second = [*plan.batches[0], *plan.batches[1]], [*plan.batches[2], *plan.batches[3]]
    assert len(set(first)) == len(set(second)) == 8
    assert first != second
    assert (trained.samples, trained.steps) == (10, 4)  # type: ignore[attr-defined]


def test_fewer_samples_than_a_batch_are_one_batch() -> None:
    plan = RecordingPlan()
    trained = train(plan, numbered(3), settings())
    assert [sorted(batch) for batch in plan.batches] == [[0, 1, 2], [0, 1, 2]]
    assert (trained.samples, trained.steps) == (3, 2)  # type: ignore[attr-defined]


def test_the_order_repeats_and_differs_by_seed_round_device_and_epoch() -> None:
    usual = order(settings())
    assert order(settings()) == usual
    others = [order(settings(seed=2)), order(settings(round=2)), order(settings(device="cam-2")), order(settings(), 2)]
    assert all(other != usual for other in others)
    assert all(sorted(other)[0] == 0 for other in [usual, *others])


def test_the_order_is_the_same_in_another_process() -> None:
    script = (
        "import torch; from edge_client.training import *;"
        "s = RoundSettings(epochs=2, batch_size=4, hyperparameters={}, seed=1, round=1, device='cam-1');"
        "print(torch.cat(list(epoch_batches(50, s, 1))).tolist())"
    )
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(order(settings()))


def test_references_are_computed_once_and_follow_their_samples() -> None:
    plan = RecordingPlan(references=2)
    train(plan, numbered(10), settings(epochs=3))
    assert plan.calls.count("references") == 3  # ten samples in batches of four, not once per epoch
    assert plan.calls.index("step") > max(i for i, call in enumerate(plan.calls) if call == "references")
    for batch, references in zip(plan.batches, plan.seen_references, strict=True):
        assert references.shape == (4, 2, 3)
        assert references[:, 0, 0].int().tolist() == batch


def test_without_references_the_plan_gets_an_empty_tensor() -> None:
    plan = RecordingPlan()
    train(plan, numbered(10), settings())
    assert "references" not in plan.calls
    assert all(references.numel() == 0 for references in plan.seen_references)


def test_the_holdout_scores_the_global_model_before_training() -> None:
    plan = RecordingPlan()
    trained = train(plan, numbered(10), settings(), holdout=numbered(6))
    assert plan.calls[:4] == ["begin", "evaluate", "evaluate", "step"]
    score = trained.holdout  # type: ignore[attr-defined]
    assert (score.loss, score.samples) == (2.0, 6)
    assert score.accuracy == pytest.approx(2 / 6)


def test_the_loss_is_the_mean_over_all_steps_and_told_after_each_epoch() -> None:
    heard: list[Progress] = []
    trained = train(RecordingPlan(), numbered(10), settings(), progress=heard.append)
    assert trained.loss == 2.5  # type: ignore[attr-defined] # of 1, 2, 3 and 4
    assert [progress.loss for progress in heard if progress.loss is not None] == [1.5, 3.5]
    assert [progress.fraction for progress in heard if progress.loss is None] == [0.25, 0.5, 0.75, 1.0]


def test_a_callback_can_stop_training() -> None:
    plan = RecordingPlan()

    def stop(progress: Progress) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        train(plan, numbered(10), settings(), progress=stop)
    assert plan.calls == ["begin", "step"]


@pytest.mark.parametrize("field", ["epochs", "batch_size", "round"])
def test_settings_name_what_is_wrong(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"{field} is 0; it must be"):
        settings(**{field: 0})


def test_no_samples_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no samples"):
        train(RecordingPlan(), numbered(0), settings())


@pytest.fixture
def plan(bundle: Bundle, tmp_path: Path) -> TorchScriptPlan:
    (tmp_path / "plan.pt").write_bytes(bundle.plan)
    return load_plan(tmp_path / "plan.pt", "cpu")


@pytest.fixture
def model(bundle: Bundle, tmp_path: Path) -> list[torch.Tensor]:
    (tmp_path / "model").write_bytes(bundle.weights)
    vector = np.array(open_model(tmp_path / "model", bundle.manifest.tensors))
    return [torch.from_numpy(values) for values in split(vector, bundle.manifest.tensors).values()]


def clouds(count: int = 40) -> Samples:
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, len(CLASSES), (count,), generator=generator)
    return Samples(inputs=torch.randn(count, 6, generator=generator) + 3 * torch.eye(6)[labels], labels=labels)


def test_a_real_plan_learns(bundle: Bundle, plan: TorchScriptPlan, model: list[torch.Tensor]) -> None:
    chosen = settings(epochs=10, batch_size=8, hyperparameters=bundle.manifest.hyperparameters)
    data = clouds()
    trained = train_round(plan, data, model=model, previous_models=[], settings=chosen, holdout=data)
    assert trained.holdout
    plan.begin_round(trained.model, [], bundle.manifest.hyperparameters)
    after = evaluate(plan, data, 8)
    assert after.loss < trained.holdout.loss / 2
    assert after.accuracy > 0.9
    again = train_round(plan, data, model=model, previous_models=[], settings=chosen)
    assert all(torch.equal(left, right) for left, right in zip(trained.model, again.model, strict=True))


def test_references_computed_once_train_like_references_computed_in_every_step(
    bundle: Bundle, plan: TorchScriptPlan, model: list[torch.Tensor]
) -> None:
    chosen = settings(batch_size=8, hyperparameters=bundle.manifest.hyperparameters)
    data, previous = clouds(), [[tensor + 0.1 for tensor in model]]
    cached = train_round(plan, data, model=model, previous_models=previous, settings=chosen)
    plan.begin_round(model, previous, chosen.hyperparameters)
    assert compute_references(plan, data, 8).shape[:2] == (40, 2)
    for epoch in (1, 2):
        for index in epoch_batches(len(data), chosen, epoch):
            inputs = data.inputs[index]
            plan.step(inputs, data.labels[index], plan.references(inputs))
    for left, right in zip(cached.model, plan.end_round(), strict=True):
        torch.testing.assert_close(left, right)
