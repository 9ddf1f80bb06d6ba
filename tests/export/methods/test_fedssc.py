"""FedSSC, FedProc and local contrast: the plan's computation, results and schedules."""

from __future__ import annotations

import pytest
import torch

from moonfed.blobs import BlobRef
from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import ExchangeShapes, Method
from moonfed.manifest import FILES, Manifest, PlanSpec
from moonfed.training_spec import TrainingSpec
from tests.export.conftest import IMAGE, SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import (
    Batch,
    Model,
    Term,
    class_means,
    cross_entropy,
    descend,
    moon_term,
    network_with,
    prototype_term,
    supervised_contrast_term,
    weights_of,
)
from tests.support.plan_rounds import (
    NONE,
    ROUNDING,
    TOLERANCE,
    WIDTH,
    Round,
    largest_difference,
    no_draws,
    other_models,
    run_round,
    smooth_network,
)

SMOOTH = smooth_network()
TAU, MU_MOON, MU_GLOB = 0.5, 5.0, 0.7


def settings(method: str = "fedssc", **others: float) -> dict[str, float]:
    return hyperparameters(**METHODS[method]().coefficients()) | {"mu_glob": MU_GLOB} | others


def prototypes(*absent: int) -> tuple[dict[str, Model], dict[int, torch.Tensor]]:
    """As a device receives them, and by class."""
    generator = torch.Generator().manual_seed(5)
    tensor = torch.randn(10, WIDTH, generator=generator)
    present = torch.ones(10)
    present[list(absent)] = 0
    tensor[list(absent)] = 0
    return {"prototypes": [present, tensor]}, {c: tensor[c] for c in range(10) if c not in absent}


def check_against_eager(found: Round, steps: list[Batch], terms: list[Term]) -> None:
    local = network_with(SMOOTH, weights_of(SMOOTH)).train()
    losses = descend(local, steps, hyperparameters(), [cross_entropy, *terms])
    assert found.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(found.model, weights_of(local)) < TOLERANCE


@pytest.mark.parametrize("previous", [1, 2])
def test_twenty_steps_with_a_class_without_prototype_equal_eager_training(previous: int, new_plan: NewPlan) -> None:
    steps, models, (received, by_class) = batches(SMALL_IMAGE, 20, 8), other_models(SMOOTH, previous), prototypes(3)
    assert any(3 in labels for _, labels in steps)
    plan = new_plan(SMOOTH, "fedssc", previous_models=previous)
    found = run_round(plan, weights_of(SMOOTH), steps, settings(), previous=models, received=received)
    assert plan.reference_count() == 1 + previous
    check_against_eager(
        found,
        steps,
        [moon_term(SMOOTH, weights_of(SMOOTH), models, MU_MOON, TAU), prototype_term(by_class, MU_GLOB, TAU)],
    )


def test_fedproc_is_cross_entropy_and_the_prototypes_alone(new_plan: NewPlan) -> None:
    steps, (received, by_class) = batches(SMALL_IMAGE, 20, 8), prototypes(3)
    plan = new_plan(SMOOTH, "fedproc")
    found = run_round(
        plan, weights_of(SMOOTH), steps, settings("fedproc"), previous=other_models(SMOOTH, 1), received=received
    )
    assert plan.reference_count() == 0
    check_against_eager(found, steps, [prototype_term(by_class, MU_GLOB, TAU)])


def test_local_contrast_adds_khoslas_loss(new_plan: NewPlan) -> None:
    steps, models, (received, by_class) = batches(SMALL_IMAGE, 20, 8), other_models(SMOOTH, 1), prototypes()
    alone = [len(set(labels.tolist())) for _, labels in steps]
    assert min(alone) < 8, "some samples need a positive"
    found = run_round(
        new_plan(SMOOTH, "fedssc-local-contrast"), weights_of(SMOOTH), steps,
        settings("fedssc-local-contrast", local_contrast=0.8), previous=models, received=received,
    )  # fmt: skip
    terms = [
        moon_term(SMOOTH, weights_of(SMOOTH), models, MU_MOON, TAU),
        prototype_term(by_class, MU_GLOB, TAU),
        supervised_contrast_term(0.8, TAU),
    ]
    check_against_eager(found, steps, terms)


@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_in_which_no_sample_has_a_positive_has_no_local_contrast(size: int, new_plan: NewPlan) -> None:
    inputs = batches(SMALL_IMAGE, 1, size)[0][0]
    steps = [(inputs, torch.arange(size))]
    with_it = run_round(
        new_plan(SMOOTH, "fedssc-local-contrast"), weights_of(SMOOTH), steps, settings("fedssc-local-contrast")
    )
    without = run_round(new_plan(SMOOTH, "fedssc"), weights_of(SMOOTH), steps, settings())
    assert largest_difference(with_it.model, without.model) < ROUNDING
    assert with_it.losses == pytest.approx(without.losses, abs=ROUNDING)


@pytest.mark.parametrize("received", [{}, {"prototypes": [torch.zeros(10), torch.zeros(10, WIDTH)]}])
def test_in_the_first_round_it_is_fedavg(received: dict[str, Model], new_plan: NewPlan) -> None:
    steps = batches(SMALL_IMAGE, 5, 8)
    fedssc = run_round(new_plan(SMOOTH, "fedssc"), weights_of(SMOOTH), steps, settings(), received=received)
    fedavg = run_round(new_plan(SMOOTH, "fedavg"), weights_of(SMOOTH), steps, hyperparameters())
    assert largest_difference(fedssc.model, fedavg.model) < ROUNDING


def test_prototypes_come_from_the_latest_round_that_began(new_plan: NewPlan) -> None:
    plan, steps = new_plan(SMOOTH, "fedssc"), batches(SMALL_IMAGE, 5, 8)
    first = run_round(plan, weights_of(SMOOTH), steps, settings())
    run_round(plan, weights_of(SMOOTH), steps, settings(), received=prototypes()[0])
    again = run_round(plan, weights_of(SMOOTH), steps, settings())
    assert largest_difference(first.model, again.model) == 0
    assert largest_difference(first.results["class_means"], again.results["class_means"]) == 0


def test_a_sample_without_prototype_counts_as_zero_in_the_mean(new_plan: NewPlan) -> None:
    plan, (inputs, labels) = new_plan(SMOOTH, "fedssc"), batches(SMALL_IMAGE, 1, 8)[0]
    received, by_class = prototypes(*[c for c in range(10) if c not in (int(labels[0]), 7)])
    plan.begin_round(weights_of(SMOOTH), [], received, settings())
    loss = float(plan.step(inputs, labels, NONE, no_draws(inputs)))
    z = SMOOTH.represent(inputs).detach()
    affected = [index for index in range(8) if int(labels[index]) in by_class]
    assert 0 < len(affected) < 8
    alone = [float(prototype_term(by_class, 1.0, TAU)(SMOOTH, inputs, z[[i]], labels[[i]])) for i in affected]
    expected = float(cross_entropy(SMOOTH, inputs, z, labels).detach()) + MU_GLOB * sum(alone) / 8
    assert loss == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("method", ["fedssc", "fedproc", "fedssc-two-stage", "fedssc-local-contrast"])
def test_class_means_are_of_the_trained_model_in_eval_mode_and_of_classes_with_enough_samples(
    method: str, new_plan: NewPlan
) -> None:
    inputs = torch.cat([inputs for inputs, _ in batches(SMALL_IMAGE, 4, 10, seed=8)])
    labels = torch.tensor([0] * 10 + [1] * 9 + [2] * 21)  # just enough, one too few, enough
    data = list(zip(torch.split(inputs, 16), torch.split(labels, 16), strict=True))  # the last batch is a partial one
    plan = new_plan(SMOOTH, method)
    found = run_round(
        plan, weights_of(SMOOTH), batches(SMALL_IMAGE, 4, 8), settings(method), received=prototypes()[0], data=data
    )
    assert largest_difference(found.model, weights_of(SMOOTH)) > 100 * TOLERANCE
    counts, means = found.results["class_means"]
    assert counts.tolist() == [10, 0, 21, 0, 0, 0, 0, 0, 0, 0]
    expected = class_means(SMOOTH, found.model, data, minimum=10)
    assert sorted(expected) == [0, 2]
    for class_, (_, mean) in expected.items():
        assert (means[class_] - mean).abs().max() < TOLERANCE
    assert means[1].abs().max() == means[3:].abs().max() == 0
    shapes = ExchangeShapes(parameters=(), classes=10, width=WIDTH)
    specs = METHODS[method]().uplink(shapes)["class_means"]
    assert [spec.name for spec in specs] == ["counts", "means"]
    assert [tuple(tensor.shape) for tensor in (counts, means)] == [spec.shape for spec in specs]
    names = [spec.name for spec in METHODS[method]().downlink(shapes)["prototypes"]]
    assert names == ["present", "prototypes"]


def test_the_minimum_of_samples_is_a_setting(new_plan: NewPlan) -> None:
    steps = [(batches(SMALL_IMAGE, 1, 6)[0][0], torch.tensor([0, 0, 0, 1, 1, 2]))]
    for minimum, counts in ((1, [3, 2, 1]), (2, [3, 2, 0]), (3, [3, 0, 0])):
        values = METHODS["fedssc"](prototype_minimum=minimum).coefficients()
        found = run_round(new_plan(SMOOTH, "fedssc"), weights_of(SMOOTH), steps, hyperparameters(**values))
        assert found.results["class_means"][0][:3].tolist() == counts


def test_a_round_without_survey_has_no_class_means(new_plan: NewPlan) -> None:
    plan = new_plan(SMOOTH, "fedssc")
    plan.begin_round(weights_of(SMOOTH), [], {}, settings())
    assert (plan.wants_survey(False), plan.wants_survey(True)) == (False, True)
    with pytest.raises(TrainingFailed, match="class means need a survey of all samples"):
        plan.end_round(1)


def manifest(method: Method) -> Manifest:
    training = TrainingSpec(epochs=1, batch_size=1, hyperparameters=hyperparameters(**method.coefficients()))
    return Manifest(
        name="n", model="cnn", method="m", training=training,
        previous_models=1, input=IMAGE, classes=("a", "b"), tensors=(),
        plan=PlanSpec(minimum_torch="2.4", built_with_torch="2.4", activation_bytes=0), schedules=method.schedules(),
        files={name: BlobRef("0" * 64, 0) for name in FILES},
    )  # fmt: skip


def test_mu_glob_falls_linearly_from_t_0_to_t() -> None:
    for method in (METHODS["fedssc"](), METHODS["fedproc"](), METHODS["fedssc-local-contrast"]()):
        found = [manifest(method).training_at(round_).hyperparameters["mu_glob"] for round_ in (1, 5, 6, 99, 100, 101)]
        slope = (1 - 0.0001) / 95
        assert found == pytest.approx([1, 1, 1 - slope, 0.0001 + slope, 0.0001, 0.0001], abs=1e-9)
    own = manifest(METHODS["fedssc"](mu_start=2.0, mu_end=1.0, decay_start=10, decay_end=20))
    assert [own.training_at(round_).hyperparameters["mu_glob"] for round_ in (10, 15, 20)] == [2.0, 1.5, 1.0]


def test_the_plan_follows_the_rounds_mu_glob(new_plan: NewPlan) -> None:
    plan, steps, (received, by_class) = new_plan(SMOOTH, "fedssc"), batches(SMALL_IMAGE, 3, 8), prototypes()
    for round_ in (5, 60, 100):
        values = manifest(METHODS["fedssc"]()).training_at(round_).hyperparameters
        found = run_round(plan, weights_of(SMOOTH), steps, values, received=received)
        check_against_eager(found, steps, [prototype_term(by_class, values["mu_glob"], TAU)])


def test_the_papers_settings_are_the_defaults() -> None:
    fedssc, fedproc = METHODS["fedssc"](), METHODS["fedproc"]()
    assert fedssc.coefficients() == {"tau": 0.5, "mu_moon": 5.0, "mu_glob": 1.0, "prototype_minimum": 10.0}
    assert (fedssc.previous_models, fedssc.frozen_encoders, fedssc.prototype_devices) == (1, 2, 1)
    assert (fedproc.previous_models, fedproc.frozen_encoders, fedproc.prototype_devices) == (0, 0, 0)
    assert METHODS["fedssc"](mu_moon=0.0).frozen_encoders == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tau": 0.0}, "tau is 0.0; it must be a number above 0"),
        ({"mu_end": -1.0}, "mu_end is -1.0; it must be a number from 0"),
        ({"decay_start": 100}, "decay_end is 100; it must be above decay_start, 100"),
        ({"prototype_minimum": 0}, "prototype_minimum is 0; it must be a whole number from 1"),
        ({"prototype_devices": -1}, "prototype_devices is -1; it must be a whole number from 0"),
    ],
)
def test_settings_that_are_not_allowed(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        METHODS["fedssc"](**wrong)
