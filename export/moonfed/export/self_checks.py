"""The build's checks of a model and its plan; each error names the model and the reason."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from moonfed.bundle.manifest import (
    MODEL,
    PERSONAL,
    PROTOTYPES,
    VARIATE,
    VARIATE_CHANGE,
    InputSpec,
    Manifest,
    output_shape,
)
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import Inputs
from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.network import Network
from moonfed.export.preprocessing import preprocessed_shape
from moonfed.plan.interface import Plan
from moonfed.user_code import describe_error

Model = list[torch.Tensor]
MANY = 64  # samples


def random_samples(sample: InputSpec, count: int, *, seed: int = 0) -> Inputs:
    """Generate random raw samples [count, …]."""
    generator = np.random.default_rng(seed)
    if sample.kind == "image":
        return generator.integers(0, 256, (count, *sample.shape), dtype=np.uint8)
    if sample.kind == "tokens":
        return generator.integers(0, len(sample.vocabulary), (count, *sample.shape), dtype=np.int64)
    return generator.standard_normal((count, *sample.shape), dtype=np.float32)


def check_samples(recipe: BundleRecipe, count: int) -> Inputs:
    """Draw raw samples like those of devices [count, …]: from the recipe's examples, or from its description."""
    generator = np.random.default_rng(0)
    if recipe.examples is not None:
        return np.array(recipe.examples[generator.integers(0, len(recipe.examples), count)])
    samples = random_samples(recipe.input, count)
    if recipe.input.kind in ("image", "tokens"):
        return samples
    if recipe.mean is not None and recipe.deviation is not None:
        samples = (samples * np.array(recipe.deviation) + np.array(recipe.mean)).astype(np.float32)
    start = 0
    for column in recipe.input.table.columns if recipe.input.table else ():
        if column.categories:
            samples[:, start : start + column.width] = np.eye(column.width)[generator.integers(0, column.width, count)]
        start += column.width
    return samples


def check_targets(target: TargetSpec, count: int) -> torch.Tensor:
    """Return targets [count, …] in which classes and labels alternate, and values are normally distributed."""
    places = torch.arange(count)
    if target.kind == "class":
        return places % len(target.names)
    if target.kind == "values":
        values = torch.randn((count, *target.shape), generator=torch.Generator().manual_seed(0))
        return values * torch.tensor(target.deviation or 1.0) + torch.tensor(target.mean or 0.0)
    numbers = torch.arange(count * math.prod(target.shape)).reshape(count, *target.shape) + places.view(
        -1, *[1] * len(target.shape)
    )
    return (numbers % max(1, len(target.names) if target.kind == "mask" else 2)).to(torch.uint8)


def minimum_samples(network: Network) -> int:
    """Return the smallest batch that the network can train on: BatchNorm cannot normalise a batch of one."""
    return 2 if any(isinstance(module, _BatchNorm) and not _is_frozen(module) for module in network.modules()) else 1


def _is_frozen(module: torch.nn.Module) -> bool:
    own = list(module.parameters())
    return bool(own) and not any(parameter.requires_grad for parameter in own)


def check_forward(network: Network, recipe: BundleRecipe) -> int:
    """Return the width of the network's representation.

    Raises InvalidInput unless the network accepts such samples, returns the task's outputs, and returns the same again.
    """
    inputs = torch.from_numpy(check_samples(recipe, 2))
    shape = "x".join(str(side) for side in recipe.input.shape)
    network.eval()
    try:
        with torch.no_grad():
            if recipe.input.kind == "features":  # cheap, and more of them show whether the network takes all numbers
                network.represent(torch.from_numpy(check_samples(recipe, MANY)))
            features = network.features(network.preprocessing(inputs))
            z_BD, outputs = network.embed(features), network.outputs(features)
            again = network(inputs)
    except Exception as error:  # user code may raise anything
        advice = "" if recipe.examples is not None else "; if it takes only certain inputs, give samples with --data"
        raise InvalidInput(
            field="model",
            value=recipe.model,
            rest=f", which does not accept inputs of {shape}: {describe_error(error)}{advice}",
        ) from error
    expected = network_shape(recipe.input, recipe.target)
    for name, result, allowed, wanted in (
        ("representation", z_BD, z_BD.dim() == 2 and len(z_BD) == 2, "width"),
        ("outputs", outputs, tuple(outputs.shape[1:]) in expected, ", ".join(map(str, expected[0]))),
    ):
        if not allowed:
            advice = "; for an autoencoder, choose task 'anomaly-detection'" if _reproduces(outputs, recipe) else ""
            raise InvalidInput(
                field="model",
                value=recipe.model,
                rest=f", whose {name} of 2 inputs have shape {list(result.shape)}; it must be [2, {wanted}]{advice}",
            )
    _check_training_mode(network, recipe)
    if not torch.allclose(outputs, again, atol=1e-5, equal_nan=True):
        raise InvalidInput(
            field="model",
            value=recipe.model,
            rest=(
                ", whose predictions are random in evaluation mode; what is random must depend on "
                "self.training, as nn.Dropout and F.dropout(h, p, self.training) do"
            ),
        )
    return int(z_BD.size(1))


def network_shape(sample: InputSpec, target: TargetSpec) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that a network's outputs for one sample may have."""
    if target.kind == "none":
        sides = preprocessed_shape(sample)
        return sides, (math.prod(sides),)
    shape = output_shape(sample, target)
    return (shape, (math.prod(shape),)) if target.kind == "values" else (shape,)


def _reproduces(outputs: torch.Tensor, recipe: BundleRecipe) -> bool:
    """Return whether a classifier returns as many numbers as it gets."""
    return recipe.target.kind == "class" and outputs.numel() == len(outputs) * math.prod(recipe.input.shape)


def require_classifier(recipe: BundleRecipe) -> None:
    """Raise InvalidInput if a user's model has an output for each number of its input, and classes have no names."""
    numbers = math.prod(recipe.input.shape)
    if recipe.classes == tuple(map(str, range(numbers))):
        raise InvalidInput(
            f"classes is {numbers}, and a sample of model {recipe.model!r} has as many numbers, as if it were an "
            "autoencoder, which needs --task anomaly-detection; if these are classes, give their names"
        )


def _check_training_mode(network: Network, recipe: BundleRecipe) -> None:
    """Run a copy of the network once as in training: that may go other ways than evaluation."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            inputs = torch.from_numpy(check_samples(recipe, max(4, minimum_samples(network))))
            copy.deepcopy(network).train()(inputs)
    except Exception as error:  # user code may raise anything
        raise InvalidInput(
            field="model", value=recipe.model, rest=f", which fails in training mode: {describe_error(error)}"
        ) from error


def check_training(
    plan: Plan,
    initial: Sequence[torch.Tensor],
    personal: Sequence[torch.Tensor],
    manifest: Manifest,
    samples: Inputs,
) -> Mapping[str, Model]:
    """Run short rounds with everything that the method uses, in sequence; return the last one's results, by role.

    `initial`, `personal`: the shared and the personal tensors. There are two rounds, and one at the end of each
    schedule. Raises InvalidInput unless losses, metrics and results are finite, the results are those of the manifest,
    and the weights change.
    """
    model = list(initial)
    previous = list[Model]()
    received = {PERSONAL: list(personal)} if personal else dict[str, Model]()
    results = dict[str, Model]()
    inputs = torch.from_numpy(samples)
    for round_ in _rounds(manifest):
        results = _short_round(
            plan, inputs, model, previous, received, manifest.training_at(round_).hyperparameters, manifest
        )
        _require_results(results, manifest)
        model, previous = results[MODEL], [model, *previous][: manifest.previous_models]
        received = _received(results, manifest)
    if not any(
        spec.kind == "parameter" and not torch.equal(before, after)
        for spec, before, after in zip(manifest.tensors, initial, model, strict=True)
    ):
        raise InvalidInput(field="model", value=manifest.model, rest=", whose weights do not change in training")
    return results


def _rounds(manifest: Manifest) -> list[int]:
    return sorted({1, 2} | {points[-1][0] for points in manifest.schedules.values()})


def _short_round(
    plan: Plan,
    inputs: torch.Tensor,
    model: Model,
    previous: Sequence[Model],
    received: Mapping[str, Model],
    hyperparameters: Mapping[str, float],
    manifest: Manifest,
) -> dict[str, Model]:
    """Take one step with precomputed references and one without, with surveys around them if the plan requests any."""
    count = len(inputs)
    targets = check_targets(manifest.target, count)
    try:
        plan.begin_round(model, previous, received, hyperparameters, 2)
        draws = torch.rand(count, plan.draws_per_sample(), generator=torch.Generator().manual_seed(0))
        if plan.wants_survey(False):
            plan.survey(inputs, targets, 0)
        references = plan.references(inputs, draws) if plan.reference_count() else torch.empty(0)
        steps = [plan.step(inputs, targets, found, draws) for found in (references, torch.empty(0))]
        for loss in steps:
            if loss.dim() > 0:  # a device adds losses up in a scalar
                raise InvalidInput(
                    field="method",
                    value=manifest.method,
                    rest=f", whose objective returns a loss of shape {list(loss.shape)}; it must be a scalar",
                )
        losses = [float(loss) for loss in steps]
        if plan.wants_survey(True):
            plan.survey(inputs, targets, len(losses))
        metrics, results = plan.metrics(), plan.end_round(len(losses))
    except TrainingFailed as error:
        raise InvalidInput(
            field="model",
            value=manifest.model,
            rest=f", which cannot be trained with the objective of {manifest.method!r}: {error}",
        ) from error
    if not all(math.isfinite(loss) for loss in losses):
        raise InvalidInput(
            field="model",
            value=manifest.model,
            rest=(
                f", whose first losses in the checks are {losses}; all must be finite, for random inputs or "
                "those of --data"
            ),
        )
    if not all(math.isfinite(value) for value in metrics.values()):
        raise InvalidInput(
            field="model", value=manifest.model, rest=f", whose metrics in the checks are {metrics}; all must be finite"
        )
    return results


def _require_results(results: Mapping[str, Model], manifest: Manifest) -> None:
    expected = {MODEL: manifest.tensors, **manifest.uplink, **manifest.device_state}
    if set(results) != set(expected):
        raise InvalidInput(
            field="model",
            value=manifest.model,
            rest=(f", whose plan returns {', '.join(sorted(results))}; it must return {', '.join(sorted(expected))}"),
        )
    for role, specs in expected.items():
        if [tuple(tensor.shape) for tensor in results[role]] != [spec.shape for spec in specs]:
            raise InvalidInput(
                field="model", value=manifest.model, rest=f", whose plan returns other tensors of {role!r}"
            )
        if not all(bool(tensor.isfinite().all()) for tensor in results[role]):
            raise InvalidInput(
                field="model", value=manifest.model, rest=f", whose {role!r} after steps in the checks is not finite"
            )


def _received(results: Mapping[str, Model], manifest: Manifest) -> dict[str, Model]:
    """Return what the next round receives if this is the only device; every second class has a random prototype."""
    received = {role: results[role] for role in manifest.device_state}
    if VARIATE in manifest.downlink:
        received[VARIATE] = results[VARIATE_CHANGE]
    if PROTOTYPES in manifest.downlink:
        present, prototypes = manifest.downlink[PROTOTYPES]
        some = torch.randn(prototypes.shape, generator=torch.Generator().manual_seed(0))
        received[PROTOTYPES] = [torch.arange(present.shape[0]).add(1).remainder(2).float(), some]
    return received
