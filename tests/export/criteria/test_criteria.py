"""Losses, sums and metrics against plain torch and scikit-learn; what is unknown, ignored or padding has no effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
import torch.nn.functional as F  # noqa: N812

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.errors import InvalidInput
from moonfed.export.criteria.criterion import Criterion, build_criterion
from moonfed.tasks import TASKS
from tests.support.refusals import refused

ROW = InputSpec(kind="features", shape=(6,))
TOKENS = InputSpec(kind="tokens", shape=(7,), vocabulary=("", "a", "b", "c", "d"))
LABELS = TargetSpec(kind="labels", names=("x", "y", "z"), shape=(3,))
VALUES = TargetSpec(kind="values", names=("u", "v"), shape=(2,), mean=(5.0, -2.0), deviation=(2.0, 0.5))
MASK = TargetSpec(kind="mask", names=("a", "b", "c"), shape=(4, 5))
NEXT = TargetSpec(kind="next", shape=(0,))


def criterion(task: str, target: TargetSpec, sample: InputSpec = ROW, **settings: Any) -> Criterion:
    found: Criterion = build_criterion(TASKS[task](**settings), target, sample)
    return found


def chance() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=chance())


def whole(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=chance())


def metric_of(chosen: Criterion, outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """The metric of sums over two unequal batches."""
    parts = [slice(0, 3), slice(3, None)]
    sums = sum((chosen.sums(outputs[part], targets[part]).double() for part in parts), torch.zeros([]).double())
    return float(chosen.metric(sums, len(outputs)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", ["", "1,2,0.5"])
def test_cross_entropy_is_torchs(weights: str, smoothing: float) -> None:
    chosen = criterion("classification", class_target(3), class_weights=weights, label_smoothing=smoothing)
    outputs, labels = random(8, 3), whole(3, 8)
    given = torch.tensor([float(weight) for weight in weights.split(",")]) if weights else None
    expected = F.cross_entropy(outputs, labels, weight=given, label_smoothing=smoothing)
    torch.testing.assert_close(chosen(outputs, labels), expected)
    torch.testing.assert_close(chosen.sums(outputs, labels)[0], F.cross_entropy(outputs, labels, reduction="sum"))
    assert metric_of(chosen, outputs, labels) == pytest.approx(
        sklearn.metrics.accuracy_score(labels, outputs.argmax(1))
    )


@pytest.mark.parametrize("weights", ["", "1,2,0.5"])
@pytest.mark.parametrize("focus", [0.0, 2.0])
def test_focal_loss_is_its_formula(focus: float, weights: str) -> None:
    chosen = criterion("classification", class_target(3), loss="focal", focus=focus, class_weights=weights)
    outputs, labels = random(8, 3), whole(3, 8)
    given = torch.tensor([float(weight) for weight in weights.split(",")]) if weights else torch.ones(3)
    right = torch.softmax(outputs, 1)[torch.arange(8), labels]
    expected = (given[labels] * -((1 - right) ** focus) * right.log()).sum() / given[labels].sum()
    torch.testing.assert_close(chosen(outputs, labels), expected)
    if focus == 0.0:
        torch.testing.assert_close(expected, F.cross_entropy(outputs, labels, weight=given))


def test_balanced_weights_follow_from_the_counts_of_a_round() -> None:
    chosen = criterion("classification", class_target(4), class_weights="balanced")
    labels, outputs = torch.tensor([0, 0, 0, 0, 1, 3, 3, 0]), random(8, 4)
    for given in (labels, labels[:5]):
        chosen.begin()
        torch.testing.assert_close(chosen(outputs, labels), F.cross_entropy(outputs, labels))
        for part in given.split(3):  # type: ignore[no-untyped-call]
            chosen.survey(part)
        counts = torch.bincount(given, minlength=4)
        expected = torch.where(counts > 0, len(given) / (4 * counts), 0.0)
        present = counts[labels] > 0
        torch.testing.assert_close(
            chosen(outputs[present], labels[present]),
            F.cross_entropy(outputs[present], labels[present], weight=expected),
        )
    assert not criterion("classification", class_target(4)).wants_survey()
    with refused(InvalidInput, "class_weights", "1,2"):
        criterion("classification", class_target(4), class_weights="1,2")


def test_unknown_labels_do_not_count() -> None:
    chosen = criterion("multilabel", LABELS)
    outputs, targets = random(9, 3), whole(2, 9, 3).to(torch.uint8)
    scores = sklearn.metrics.f1_score(targets, outputs >= 0, average="macro", zero_division=0.0)
    assert metric_of(chosen, outputs, targets) == pytest.approx(scores)
    torch.testing.assert_close(chosen(outputs, targets), F.binary_cross_entropy_with_logits(outputs, targets.float()))
    targets[2:4, 1] = 255
    known = targets[:, 1] != 255
    scores = np.mean(
        [
            sklearn.metrics.f1_score(targets[rows, label], outputs[rows, label] >= 0, zero_division=0.0)
            for label, rows in enumerate((torch.full_like(known, True), known, torch.full_like(known, True)))
        ]
    )
    assert metric_of(chosen, outputs, targets) == pytest.approx(scores)
    places = targets != 255
    expected = F.binary_cross_entropy_with_logits(outputs[places], targets[places].float())
    torch.testing.assert_close(chosen(outputs, targets), expected)
    assert float(chosen(outputs, torch.full_like(targets, 255))) == 0.0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, lambda e: e.square().mean(), id="squared"),
        pytest.param({"loss": "absolute-error"}, lambda e: e.abs().mean(), id="absolute"),
        pytest.param(
            {"loss": "huber", "delta": 0.7},
            lambda e: torch.where(e.abs() < 0.7, e.square() / 2, 0.7 * (e.abs() - 0.35)).mean(),
            id="huber",
        ),
        pytest.param(
            {"loss": "pinball", "quantile": 0.9},
            lambda e: torch.where(e < 0, -0.9 * e, 0.1 * e).mean(),
            id="pinball",
        ),
    ],
)
def test_losses_of_values_are_their_formulas(settings: dict[str, Any], expected: Any) -> None:
    chosen = criterion("regression", VALUES, **settings)
    outputs, values = random(8, 2), 3.0 * random(8, 2) + 1.0
    wanted = chosen.targets(outputs, values)
    errors = outputs - (values - torch.tensor([5.0, -2.0])) / torch.tensor([2.0, 0.5])
    torch.testing.assert_close(chosen(outputs, wanted), expected(errors))
    error = sklearn.metrics.mean_squared_error(values, chosen.predict(outputs, outputs))
    assert metric_of(chosen, outputs, wanted) == pytest.approx(error**0.5, rel=1e-5)
    assert chosen.sums(outputs, wanted).tolist() == pytest.approx([len(values) * error], rel=1e-5)


def test_ignored_pixels_do_not_count() -> None:
    chosen = criterion("segmentation", MASK, InputSpec(kind="image", shape=(4, 5, 1)))
    outputs, masks = random(6, 3, 4, 5), whole(3, 6, 4, 5).to(torch.uint8)
    masks[:, 0], masks[0] = 255, 7  # both are no class
    wanted = chosen.targets(outputs, masks)
    known = masks < 3
    logits = outputs.permute(0, 2, 3, 1)[known]
    torch.testing.assert_close(chosen(outputs, wanted), F.cross_entropy(logits, masks[known].long()))
    expected = sklearn.metrics.jaccard_score(masks[known], outputs.argmax(1)[known], average="macro")
    assert metric_of(chosen, outputs, wanted) == pytest.approx(expected)
    nothing = chosen.targets(outputs, torch.full_like(masks, 255))
    assert float(chosen(outputs, nothing)) == 0.0
    assert metric_of(chosen, outputs, nothing) == 0.0


def test_dice_loss_is_one_minus_the_mean_coefficient() -> None:
    chosen = criterion("segmentation", MASK, InputSpec(kind="image", shape=(4, 5, 1)), loss="dice")
    outputs, masks = random(6, 3, 4, 5), whole(3, 6, 4, 5).to(torch.uint8)
    masks[:, 0] = 255
    known, shares = masks < 3, torch.softmax(outputs, 1).permute(0, 2, 3, 1)
    coefficients = [
        (2 * shares[known][masks[known] == index, index].sum() + 1)
        / (shares[known][:, index].sum() + (masks[known] == index).sum() + 1)
        for index in range(3)
    ]
    found = chosen(outputs, chosen.targets(outputs, masks))
    torch.testing.assert_close(found, 1 - torch.stack(coefficients).mean())


def test_padding_does_not_count() -> None:
    chosen = criterion("next-token", NEXT, TOKENS)
    outputs, tokens = random(5, 7, 5), whole(5, 5, 7)
    tokens[:, 5:], tokens[2] = 0, 0
    wanted = chosen.targets(tokens, torch.empty(5, 0))
    known = tokens[:, 1:] != 0
    expected = F.cross_entropy(outputs[:, :-1][known], tokens[:, 1:][known])
    torch.testing.assert_close(chosen(outputs, wanted), expected)
    assert metric_of(chosen, outputs, wanted) == pytest.approx(float(expected.exp()), rel=1e-6)
    assert float(chosen(outputs, torch.zeros_like(wanted))) == 0.0


def test_scores_are_the_errors_of_reproduced_samples() -> None:
    chosen = criterion("anomaly-detection", TargetSpec(kind="none", shape=(0,)))
    samples, outputs = random(6, 6), random(6, 6).flip(0)
    scores = [sklearn.metrics.mean_squared_error(*pair) for pair in zip(samples, outputs, strict=True)]
    torch.testing.assert_close(chosen.predict(outputs, samples), torch.tensor(scores, dtype=torch.float32))
    wanted = chosen.targets(samples, torch.empty(6, 0))
    assert metric_of(chosen, outputs, wanted) == pytest.approx(float(np.mean(scores)))
