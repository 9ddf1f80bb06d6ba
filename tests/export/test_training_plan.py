"""The compiled plan as a device loads it, compared with the same training in eager PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.errors import TrainingFailed
from moonfed.export.augmentation import NoAugmentation
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.plan.interface import load_plan
from tests.export.conftest import FEATURES, IMAGE, SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import network_with, trained_eagerly, weights_of
from tests.support.plan_rounds import NONE, TOLERANCE, largest_difference, no_draws, other_models, run_round, trained


@pytest.mark.parametrize(("method", "previous"), [("fedavg", 0), ("moon", 1), ("moon", 3)])
@pytest.mark.parametrize(("kind", "sample", "rate"), [("cnn", IMAGE, 0.01), ("resnet", SMALL_IMAGE, 0.0003)])
def test_twenty_steps_equal_eager_training(
    kind: str,
    sample: InputSpec,
    rate: float,
    method: str,
    previous: int,
    request: pytest.FixtureRequest,
    new_plan: NewPlan,
) -> None:
    # A larger rate makes a ResNet on batches of eight chaotic: rounding alone then moves weights by more than 1e-5.
    network: Network = request.getfixturevalue(kind)
    plan = new_plan(network, method, **({"previous_models": previous} if previous else {}))
    settings = hyperparameters(**({"mu": 5.0, "tau": 0.5} if method == "moon" else {})) | {"learning_rate": rate}
    models = other_models(network, previous)
    steps = batches(sample, 20, 8)
    model, losses = trained(plan, weights_of(network), models, steps, settings)
    expected, expected_losses = trained_eagerly(network, weights_of(network), models, steps, settings)
    assert losses == pytest.approx(expected_losses, abs=TOLERANCE)
    assert largest_difference(model, expected) < TOLERANCE
    assert largest_difference(model, weights_of(network)) > 100 * TOLERANCE


@pytest.mark.slow
def test_two_steps_of_the_zoos_resnet_equal_eager_training(new_plan: NewPlan) -> None:
    network = build_network("resnet18", SMALL_IMAGE, class_target(10), seed=1)
    settings = hyperparameters(mu=1.0, tau=0.5) | {"learning_rate": 0.001}
    models, steps = other_models(network, 1), batches(SMALL_IMAGE, 2, 4)
    model, _ = trained(new_plan(network, "moon"), weights_of(network), models, steps, settings)
    expected, _ = trained_eagerly(network, weights_of(network), models, steps, settings)
    assert largest_difference(model, expected) < TOLERANCE


def test_steps_of_an_mlp_on_features_equal_eager_training(new_plan: NewPlan) -> None:
    network = build_network("mlp", FEATURES, class_target(10), mean=(0.1,) * 30, deviation=(2.0,) * 30)
    models, steps = other_models(network, 1), batches(FEATURES, 20, 16)
    settings = hyperparameters(mu=1.0, tau=0.5)
    model, _ = trained(new_plan(network, "moon"), weights_of(network), models, steps, settings)
    expected, _ = trained_eagerly(network, weights_of(network), models, steps, settings)
    assert largest_difference(model, expected) < TOLERANCE


def test_a_parameter_without_gradient_does_not_change_even_with_weight_decay(new_plan: NewPlan) -> None:
    network = build_network("tests.support.residual_network:with_unused_layer", FEATURES, class_target(10))
    settings = hyperparameters() | {"weight_decay": 0.1}
    steps = batches(FEATURES, 5, 4)
    model, _ = trained(new_plan(network, "fedavg"), weights_of(network), [], steps, settings)
    expected, _ = trained_eagerly(network, weights_of(network), [], steps, settings)
    names = list(exchanged_tensors(network))
    assert torch.equal(model[names.index("encoder.unused.weight")], network.get_parameter("encoder.unused.weight"))
    assert largest_difference(model, expected) < TOLERANCE


def away_from_global(representations: list[torch.Tensor], tau: float = 0.5) -> torch.Tensor:
    """Compute MOON's references from the representations of the global and the previous models."""
    units = [each.detach() / each.detach().norm(dim=1, keepdim=True) for each in representations]
    return torch.stack([(unit - units[0]) / tau for unit in units[1:]], dim=1)


def test_references_come_from_the_frozen_models_in_eval_mode_global_first(resnet: Network, new_plan: NewPlan) -> None:
    plan, models = new_plan(resnet, "moon", previous_models=3), other_models(resnet, 3)
    inputs, labels = batches(SMALL_IMAGE, 1, 8)[0]
    plan.begin_round(weights_of(resnet), models, {}, hyperparameters(mu=5.0, tau=0.5))
    before = plan.references(inputs, no_draws(inputs))
    frozen = [network_with(resnet, model).eval() for model in (weights_of(resnet), *models)]
    expected = away_from_global([network.represent(inputs) for network in frozen])
    distances = (before[:, :, None] - expected[:, None, :]).abs().amax(dim=(0, 3))
    assert distances.diagonal().max() < TOLERANCE
    assert (distances + torch.eye(3)).min() > 100 * TOLERANCE, "the models are too alike for this test to mean anything"
    train_mode = [network.train().represent(inputs) for network in frozen]
    assert (before - away_from_global(train_mode)).abs().max() > 100 * TOLERANCE
    plan.step(inputs, labels, before, no_draws(inputs))
    assert torch.equal(plan.references(inputs, no_draws(inputs)), before), (
        "training must not change the frozen encoders"
    )


def test_a_step_uses_the_given_references(cnn: Network, new_plan: NewPlan) -> None:
    """Exchanging the two models turns the contrastive log(1 + exp(-x)) into log(1 + exp(x)), which adds x."""
    plan, models = new_plan(cnn, "moon"), other_models(cnn, 1)
    inputs, labels = batches(IMAGE, 1, 8)[0]

    def loss(exchanged: bool) -> float:
        plan.begin_round(weights_of(cnn), models, {}, hyperparameters(mu=5.0, tau=0.5))
        references = plan.references(inputs, no_draws(inputs))
        return float(plan.step(inputs, labels, -references if exchanged else references, no_draws(inputs)))

    present, previous = (network_with(cnn, model).represent(inputs).detach() for model in (weights_of(cnn), *models))
    x = (1.0 - torch.nn.functional.cosine_similarity(present, previous)) / 0.5  # it is the global model still
    assert 5.0 * float(x.mean()) > 0.01
    assert loss(True) - loss(False) == pytest.approx(5.0 * float(x.mean()), abs=TOLERANCE)


def test_references_belong_to_the_current_round(cnn: Network, new_plan: NewPlan) -> None:
    plan, (first, second) = new_plan(cnn, "moon"), other_models(cnn, 2)
    settings, inputs = hyperparameters(mu=5.0, tau=0.5), batches(IMAGE, 1, 4)[0][0]
    plan.begin_round(first, [second], {}, settings)
    plan.begin_round(second, [weights_of(cnn)], {}, settings)
    expected = [network_with(cnn, model).represent(inputs) for model in (second, weights_of(cnn))]
    assert (plan.references(inputs, no_draws(inputs)) - away_from_global(expected)).abs().max() < TOLERANCE


def test_momentum_persists_within_a_round_and_resets_with_the_next(cnn: Network, new_plan: NewPlan) -> None:
    plan, steps, settings = new_plan(cnn, "fedavg"), batches(IMAGE, 6, 8), hyperparameters()
    middle, _ = trained(plan, weights_of(cnn), [], steps[:3], settings)
    last, _ = trained(plan, middle, [], steps[3:], settings)
    expected_middle, _ = trained_eagerly(cnn, weights_of(cnn), [], steps[:3], settings)
    expected, _ = trained_eagerly(cnn, expected_middle, [], steps[3:], settings)
    without_restart, _ = trained_eagerly(cnn, weights_of(cnn), [], steps, settings)
    assert largest_difference(last, expected) < TOLERANCE
    assert largest_difference(last, without_restart) > 10 * TOLERANCE


def test_steps_without_momentum_equal_eager_training(cnn: Network, new_plan: NewPlan) -> None:
    steps, settings = batches(IMAGE, 5, 8), hyperparameters() | {"momentum": 0.0}
    model, _ = trained(new_plan(cnn, "fedavg"), weights_of(cnn), [], steps, settings)
    expected, _ = trained_eagerly(cnn, weights_of(cnn), [], steps, settings)
    assert largest_difference(model, expected) < TOLERANCE


def test_hyperparameters_are_set_per_round(cnn: Network, new_plan: NewPlan) -> None:
    plan, steps, models = new_plan(cnn, "moon"), batches(IMAGE, 3, 8), other_models(cnn, 1)
    for settings in (hyperparameters(mu=5.0, tau=0.5), hyperparameters(mu=0.1, tau=1.0) | {"learning_rate": 0.1}):
        model, _ = trained(plan, weights_of(cnn), models, steps, settings)
        expected, _ = trained_eagerly(cnn, weights_of(cnn), models, steps, settings)
        assert largest_difference(model, expected) < TOLERANCE


class Scaled(NoAugmentation):
    """An augmentation with two draws: a factor and a sign."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = 2

    def forward(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return inputs * (0.5 + draws[:, :1]) * torch.where(draws[:, 1:] < 0.5, -1.0, 1.0)


@pytest.mark.parametrize("cached", [True, False])
def test_references_and_steps_augment_identically(cached: bool, tmp_path: Path) -> None:
    network = build_network("mlp", FEATURES, class_target(10))
    method, settings = METHODS["moon"](), hyperparameters(mu=1.0, tau=0.5)
    save_plan(tmp_path / "plan.pt", compile_plan(network, method, settings, augmentation=Scaled(), model="tested"))
    plan, models = load_plan(tmp_path / "plan.pt", "cpu"), other_models(network, 1)
    assert plan.draws_per_sample() == 2
    steps, generator = batches(FEATURES, 20, 16), torch.Generator().manual_seed(2)
    plan.begin_round(weights_of(network), models, {}, settings)
    augmented = []
    for inputs, labels in steps:
        draws = torch.rand(16, 2, generator=generator)
        augmented.append((Scaled()(inputs, draws), labels))
        plan.step(inputs, labels, plan.references(inputs, draws) if cached else NONE, draws)
    expected, _ = trained_eagerly(network, weights_of(network), models, augmented, settings)
    assert largest_difference(plan.end_round(1)["model"], expected) < TOLERANCE
    plain, _ = trained_eagerly(network, weights_of(network), models, steps, settings)
    assert largest_difference(plain, expected) > 100 * TOLERANCE


def test_surveys_and_predictions_are_not_augmented(tmp_path: Path) -> None:
    network, (inputs, labels) = build_network("mlp", FEATURES, class_target(10)), batches(FEATURES, 1, 16)[0]
    method = METHODS["fedproc"](prototype_minimum=1)
    settings = hyperparameters(**method.hyperparameters())
    save_plan(tmp_path / "plan.pt", compile_plan(network, method, settings, augmentation=Scaled(), model="tested"))
    plan = load_plan(tmp_path / "plan.pt", "cpu")
    plan.begin_round(weights_of(network), [], {}, settings)
    plan.survey(inputs, labels, 1)
    means = plan.end_round(1)["class_means"][1]
    first = int(labels[0])
    expected = network.represent(inputs[labels == first]).mean(dim=0)
    assert (means[first] - expected).abs().max() < TOLERANCE
    assert (plan.predict(inputs) - torch.softmax(network(inputs), dim=1)).abs().max() < TOLERANCE


def test_evaluate_and_predict_use_the_current_model_in_eval_mode(resnet: Network, new_plan: NewPlan) -> None:
    plan, steps = new_plan(resnet, "fedavg"), batches(SMALL_IMAGE, 3, 8)
    inputs, labels = batches(SMALL_IMAGE, 1, 32, seed=5)[0]
    model, _ = trained(plan, weights_of(resnet), [], steps, hyperparameters())
    logits = network_with(resnet, model).eval()(inputs).detach()
    assert (plan.predict(inputs) - torch.softmax(logits, dim=1)).abs().max() < TOLERANCE
    summed, correct = plan.evaluate(inputs, labels).tolist()
    assert summed == pytest.approx(float(-torch.log_softmax(logits, 1)[torch.arange(32), labels].sum()), rel=1e-5)
    assert correct == float((logits.argmax(1) == labels).sum())
    assert largest_difference(plan.end_round(1)["model"], model) == 0, "evaluation must not move BatchNorm's statistics"


def test_end_round_returns_copies(cnn: Network, new_plan: NewPlan) -> None:
    plan = new_plan(cnn, "fedavg")
    plan.begin_round(weights_of(cnn), [], {}, hyperparameters())
    kept = plan.end_round(1)["model"]
    trained(plan, other_models(cnn, 1)[0], [], batches(IMAGE, 1, 8), hyperparameters())
    assert largest_difference(kept, weights_of(cnn)) == 0


def test_errors_in_a_round_are_one_sentence(cnn: Network, new_plan: NewPlan) -> None:
    plan, model = new_plan(cnn, "moon"), weights_of(cnn)
    with pytest.raises(TrainingFailed, match="hyperparameter 'tau' is missing"):
        plan.begin_round(model, [], {}, hyperparameters(mu=1.0))
    with pytest.raises(TrainingFailed, match=r"the model has 13 tensors; the plan has 14"):
        plan.begin_round(model[1:], [], {}, hyperparameters(mu=1.0, tau=0.5))
    with pytest.raises(TrainingFailed, match="tensor 0 of the model has another shape"):
        plan.begin_round([torch.zeros(1), *model[1:]], [], {}, hyperparameters(mu=1.0, tau=0.5))
    plan.begin_round(model, [], {}, hyperparameters(mu=1.0, tau=0.5))
    with pytest.raises(TrainingFailed, match=r"could not take a step: Expected input batch_size \(4\)") as error:
        plan.step(
            torch.zeros(4, 32, 32, 3, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64), NONE, torch.empty(4, 0)
        )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_dropout_follows_the_seed_and_stays_out_of_predictions(precision: str, new_plan: NewPlan) -> None:
    network = build_network("mlp", FEATURES, class_target(10), projection=None, seed=3)
    network.encoder.add_module("dropout", torch.nn.Dropout(0.5))
    plan, steps = new_plan(network, "fedavg", precision=precision), batches(FEATURES, 3, 20)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(run_round(plan, weights_of(network), steps, hyperparameters()).losses)
    assert losses[0] == losses[1] != losses[2]
    inputs = steps[0][0]
    assert torch.equal(plan.predict(inputs), plan.predict(inputs))
