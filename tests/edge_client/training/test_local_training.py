"""The local loop: samples, draws and references of its steps, and the results of a round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from moonfed.blobs.tensors import open_model, split
from moonfed.edge_client.training.batches import compute_references
from moonfed.edge_client.training.data_placement import Memory
from moonfed.edge_client.training.local_training import (
    Progress,
    Samples,
    Trained,
    evaluate,
    train_round,
)
from moonfed.edge_client.training.rng import epoch_batches, sample_draws
from moonfed.errors import InvalidInput
from moonfed.plan.interface import TorchScriptPlan, load_torchscript_plan
from moonfed.sandbox.ipc import Stopped
from tests.edge_client.conftest import CLASSES, Bundle
from tests.support.recording import RecordingPlan, numbered, settings, train


def test_every_epoch_shows_each_sample_once_but_for_the_last_partial_batch() -> None:
    plan = RecordingPlan()
    trained = train(plan, numbered(10), settings())
    assert [len(batch) for batch in plan.batches] == [4, 4, 4, 4]
    first, second = [*plan.batches[0], *plan.batches[1]], [*plan.batches[2], *plan.batches[3]]
    assert len(set(first)) == len(set(second)) == 8
    assert first != second
    assert (trained.samples, trained.steps) == (10, 4)


def test_fewer_samples_than_a_batch_are_one_batch() -> None:
    plan = RecordingPlan()
    trained = train(plan, numbered(3), settings())
    assert [sorted(batch) for batch in plan.batches] == [[0, 1, 2], [0, 1, 2]]
    assert (trained.samples, trained.steps) == (3, 2)


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


def test_without_augmentation_views_change_nothing() -> None:
    plan, usual = RecordingPlan(references=2), RecordingPlan(references=2)
    train(plan, numbered(10), settings(epochs=3, views=2))
    train(usual, numbered(10), settings(epochs=3))
    assert plan.calls == usual.calls
    assert plan.batches == usual.batches
    assert all(draws.shape == (4, 0) for draws in plan.seen_draws)


def test_a_fresh_augmentation_draws_for_every_epoch_and_leaves_references_to_the_step() -> None:
    plan = RecordingPlan(references=2, draws=5)
    train(plan, numbered(8), settings(epochs=2))
    assert "references" not in plan.calls
    assert all(references.numel() == 0 for references in plan.seen_references)
    first, second = plan.draws_by_sample(0, 2), plan.draws_by_sample(2, 2)
    assert sorted(first) == sorted(second) == list(range(8))
    given = [tuple(draws) for draws in [*first.values(), *second.values()]]
    assert len(set(given)) == 16
    assert all(len(draws) == 5 and all(0 <= draw < 1 for draw in draws) for draws in given)


def test_views_are_taken_in_turn_and_their_references_computed_when_first_used() -> None:
    plan = RecordingPlan(references=2, draws=3)
    train(plan, numbered(8), settings(epochs=5, views=2))
    one, two = ["references"] * 2, ["step"] * 2  # eight samples in batches of four
    assert plan.calls == ["begin", *one, *two, *one, *two, *two, *two, *two, "end"]
    first, second, third, fourth, fifth = (plan.draws_by_sample(2 * epoch, 2) for epoch in range(5))
    assert first == third == fifth
    assert second == fourth
    assert first == dict(enumerate(sample_draws(8, 3, settings(views=2), 0).tolist())), "the first epoch's is view 0"
    assert all(first[sample] != second[sample] for sample in range(8))
    for batch, draws, references in zip(plan.batches, plan.seen_draws, plan.seen_references, strict=True):
        expected = torch.tensor(batch) + draws.sum(1)
        torch.testing.assert_close(references, expected.reshape(-1, 1, 1).repeat(1, 2, 3))


def test_a_round_that_ends_early_computes_no_references_for_views_that_it_does_not_use() -> None:
    plan = RecordingPlan(references=1, draws=3)
    train(plan, numbered(8), settings(epochs=6, views=2, max_steps=5))
    assert plan.calls.count("references") == 4  # of two views, in two batches each
    early = RecordingPlan(references=1, draws=3)
    train(early, numbered(8), settings(epochs=6, views=2, max_steps=3))
    assert "references" not in early.calls, "no view comes back"


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 6, 7])
def test_a_work_budget_ends_the_round_early_and_is_counted(budget: int) -> None:
    plan, whole = RecordingPlan(), RecordingPlan()
    heard: list[Progress] = []
    trained = train(plan, numbered(10), settings(epochs=3, max_steps=budget), progress=heard.append)
    train(whole, numbered(10), settings(epochs=3))
    taken = min(budget, 6)
    assert plan.batches == whole.batches[:taken]
    assert (trained.samples, trained.steps) == (10, taken)
    assert trained.loss == pytest.approx(sum(range(1, taken + 1)) / taken)
    assert heard[-1].fraction == 1.0


def test_surveys_see_every_sample_once_before_the_steps_and_after_them() -> None:
    plan = RecordingPlan(before=True, after=True)
    train(plan, numbered(10), settings(epochs=1))
    assert plan.calls == ["begin", *["survey"] * 3, "step", "step", *["survey"] * 3, "end"]
    assert plan.surveyed == [*range(10), *range(10)]
    for only in ("before", "after"):
        plan = RecordingPlan(**{only: True})
        train(plan, numbered(10), settings(epochs=1))
        assert plan.surveyed == list(range(10))
        assert (plan.calls.index("survey") < plan.calls.index("step")) == (only == "before")


def test_received_state_reaches_the_plan_and_its_results_are_returned() -> None:
    plan = RecordingPlan()
    plan.results, plan.measured = {"model": [torch.ones(1)], "variate_change": [torch.zeros(1)]}, {"inexactness": 0.5}
    model, previous, received = [torch.zeros(1)], [[torch.ones(2)]], {"variate": [torch.ones(3)]}
    trained = train_round(
        plan, numbered(4), model=model, previous_models=previous, received=received, settings=settings()
    )
    assert plan.began == (model, previous, received, {"learning_rate": 0.1})
    assert trained.results is plan.results
    assert trained.metrics == {"inexactness": 0.5}


def test_the_holdout_scores_the_global_model_before_training() -> None:
    plan = RecordingPlan()
    trained = train(plan, numbered(10), settings(), holdout=numbered(6))
    assert plan.calls[:4] == ["begin", "evaluate", "evaluate", "step"]
    score = trained.holdout
    assert score
    assert (score.loss, score.samples) == (2.0, 6)
    assert score.score == pytest.approx(2 / 6)


def test_the_loss_is_the_mean_over_all_steps_and_reported_after_each_epoch() -> None:
    heard: list[Progress] = []
    trained = train(RecordingPlan(), numbered(10), settings(), progress=heard.append)
    assert trained.loss == 2.5  # of 1, 2, 3 and 4
    assert [progress.loss for progress in heard if progress.loss is not None] == [1.5, 3.5]
    assert [progress.fraction for progress in heard if progress.loss is None] == [0.25, 0.5, 0.75, 1.0]


def test_progress_never_decreases() -> None:
    heard: list[Progress] = []
    plan = RecordingPlan(references=1, draws=2, before=True, after=True)
    train(plan, numbered(10), settings(epochs=3, views=3), holdout=numbered(5), progress=heard.append)
    fractions = [progress.fraction for progress in heard]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)


def test_a_callback_can_stop_training() -> None:
    plan = RecordingPlan()

    def stop(progress: Progress) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        train(plan, numbered(10), settings(), progress=stop)
    assert plan.calls == ["begin", "step"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("round", 0),
        ("max_steps", 0),
        ("views", -1),
        ("max_seconds", 0),
        ("max_seconds", float("nan")),
    ],
)
def test_an_invalid_setting_is_named(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"{field} is {value}; it must be"):
        settings(**{field: value})


def test_no_samples_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="no samples"):
        train(RecordingPlan(), numbered(0), settings())


@pytest.fixture
def plan(bundle: Bundle, tmp_path: Path) -> TorchScriptPlan:
    (tmp_path / "plan.pt").write_bytes(bundle.plan)
    return load_torchscript_plan(tmp_path / "plan.pt", "cpu")


@pytest.fixture
def model(bundle: Bundle, tmp_path: Path) -> list[torch.Tensor]:
    (tmp_path / "model").write_bytes(bundle.weights)
    vector = np.array(open_model(tmp_path / "model", bundle.manifest.tensors))
    return [torch.from_numpy(values) for values in split(vector, bundle.manifest.tensors).values()]


def clouds(count: int = 40) -> Samples:
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, len(CLASSES), (count,), generator=generator)
    return Samples(inputs=torch.randn(count, 6, generator=generator) + 3 * torch.eye(6)[labels], targets=labels)


def test_a_real_plan_learns(bundle: Bundle, plan: TorchScriptPlan, model: list[torch.Tensor]) -> None:
    chosen = settings(epochs=10, batch_size=8, hyperparameters=bundle.manifest.training.hyperparameters)
    data = clouds()
    trained = train_round(plan, data, model=model, previous_models=[], received={}, settings=chosen, holdout=data)
    assert trained.holdout
    plan.begin_round(trained.results["model"], [], {}, bundle.manifest.training.hyperparameters)
    after = evaluate(plan, data, 8)
    assert after.loss < trained.holdout.loss / 2
    assert after.score > 0.9
    again = train_round(plan, data, model=model, previous_models=[], received={}, settings=chosen)
    assert all(
        torch.equal(left, right) for left, right in zip(trained.results["model"], again.results["model"], strict=True)
    )


def test_references_computed_once_train_like_references_computed_in_every_step(
    bundle: Bundle, plan: TorchScriptPlan, model: list[torch.Tensor]
) -> None:
    chosen = settings(batch_size=8, hyperparameters=bundle.manifest.training.hyperparameters)
    data, previous = clouds(), [[tensor + 0.1 for tensor in model]]
    cached = train_round(plan, data, model=model, previous_models=previous, received={}, settings=chosen)
    plan.begin_round(model, previous, {}, chosen.training.hyperparameters)
    none = torch.empty(len(data), 0)
    assert compute_references(plan, data, none, 8).shape[:2] == (40, 1)
    for epoch in (1, 2):
        for index in epoch_batches(len(data), chosen, epoch):
            inputs = data.inputs[index]
            plan.step(inputs, data.targets[index], plan.references(inputs, none[index]), none[index])
    for left, right in zip(cached.results["model"], plan.end_round(1)["model"], strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("batch_size", [8, 64])
def test_references_that_do_not_fit_are_computed_by_the_step_with_the_same_result(
    batch_size: int, bundle: Bundle, plan: TorchScriptPlan, model: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(epochs=3, batch_size=batch_size, hyperparameters=bundle.manifest.training.hyperparameters)
    previous = [[tensor + 0.1 for tensor in model]]

    def trained() -> Trained:
        return train_round(plan, clouds(), model=model, previous_models=previous, received={}, settings=chosen)

    cached = trained()
    monkeypatch.setattr("moonfed.edge_client.training.local_training.free_memory", lambda *_: Memory(host=0))
    uncached = trained()
    assert uncached.loss == pytest.approx(cached.loss, rel=1e-6)
    for left, right in zip(cached.results["model"], uncached.results["model"], strict=True):
        torch.testing.assert_close(left, right)


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what makes a host wait for an accelerator's result, as `float` and `.item()` do."""

    count = 0

    def __torch_dispatch__(
        self, op: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        self.count += op is torch.ops.aten._local_scalar_dense.default
        return op(*args, **(kwargs or {}))


def test_the_loss_is_read_back_once_per_epoch(bundle: Bundle, plan: TorchScriptPlan, model: list[torch.Tensor]) -> None:
    chosen = settings(epochs=3, batch_size=8, hyperparameters=bundle.manifest.training.hyperparameters)
    with HostReads() as reads:  # type: ignore[no-untyped-call]
        trained = train_round(plan, clouds(), model=model, previous_models=[model], received={}, settings=chosen)
    assert (trained.steps, reads.count) == (15, 3)


def test_a_device_with_fewer_samples_than_a_batch_trains_a_real_plan(
    bundle: Bundle, plan: TorchScriptPlan, model: list[torch.Tensor]
) -> None:
    """Compared with the plan's own steps on all samples at once."""
    chosen = settings(epochs=3, batch_size=8, hyperparameters=bundle.manifest.training.hyperparameters)
    data = clouds(5)
    trained = train_round(plan, data, model=model, previous_models=[], received={}, settings=chosen)
    assert (trained.samples, trained.steps) == (5, 3)
    plan.begin_round(model, [], {}, chosen.training.hyperparameters)
    for _ in range(3):
        plan.step(data.inputs, data.targets, torch.empty(0), torch.empty(5, 0))
    for left, right in zip(trained.results["model"], plan.end_round(3)["model"], strict=True):
        torch.testing.assert_close(left, right)
