"""The build's own checks of a model and its plan, each with a sentence for the model that fails it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from export.network import Network
from export.recipe import Recipe
from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.manifest import InputSpec, Manifest
from moonfed.plan import Plan
from moonfed.samples import Inputs

Model = list[torch.Tensor]


def random_samples(sample: InputSpec, count: int, *, seed: int = 0) -> Inputs:
    """Raw samples [count, …] that stand for no data in particular."""
    generator = np.random.default_rng(seed)
    if sample.kind == "image":
        return generator.integers(0, 256, (count, *sample.shape), dtype=np.uint8)
    return generator.standard_normal((count, *sample.shape), dtype=np.float32)


def minimum_samples(network: Network) -> int:
    """The smallest batch that the network can train on: BatchNorm cannot normalise a batch of one."""
    return 2 if any(isinstance(module, _BatchNorm) for module in network.modules()) else 1


def check_forward(network: Network, recipe: Recipe) -> None:
    """Raises InvalidInput unless the network takes such samples and returns one logit per class."""
    inputs = torch.from_numpy(random_samples(recipe.input, 2))
    shape, classes = "x".join(str(side) for side in recipe.input.shape), len(recipe.classes)
    network.eval()
    try:
        with torch.no_grad():
            z_BD = network.represent(inputs)  # noqa: N806
            logits_BC = network.classify(z_BD)  # noqa: N806
    except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError, IndexError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidInput(f"model is {recipe.model!r}, which does not take inputs of {shape}: {reason}") from error
    for name, result, allowed in (
        ("representation", z_BD, z_BD.dim() == 2 and len(z_BD) == 2),
        ("logits", logits_BC, logits_BC.shape == (2, classes)),
    ):
        if not allowed:
            raise InvalidInput(
                f"model is {recipe.model!r}, whose {name} of 2 inputs have shape {list(result.shape)}; "
                f"it must be [2, {classes if name == 'logits' else 'width'}]"
            )


def check_training(plan: Plan, initial: Sequence[torch.Tensor], manifest: Manifest) -> Model:
    """Two rounds of one step each, the second with the first one's result as a previous model; returns the last model.

    Raises InvalidInput unless losses are finite and every step changes the weights.
    """
    first = _one_step(plan, initial, [], manifest)
    return _one_step(plan, first, [initial], manifest)


def _one_step(
    plan: Plan, model: Sequence[torch.Tensor], previous: Sequence[Sequence[torch.Tensor]], manifest: Manifest
) -> Model:
    count = max(4, manifest.plan.minimum_samples)
    inputs = torch.from_numpy(random_samples(manifest.input, count))
    labels = torch.arange(count) % len(manifest.classes)
    try:
        plan.begin_round(model, previous, manifest.hyperparameters)
        references = plan.references(inputs) if plan.reference_count() else torch.empty(0)
        loss = float(plan.step(inputs, labels, references))
    except TrainingFailed as error:
        raise InvalidInput(f"model is {manifest.model!r}, which cannot be trained: {error}") from error
    result = plan.end_round()
    if not math.isfinite(loss):
        raise InvalidInput(f"model is {manifest.model!r}, whose first losses on random inputs are {loss}; none may be")
    if all(torch.equal(before, after) for before, after in zip(model, result, strict=True)):
        raise InvalidInput(f"model is {manifest.model!r}, whose weights a training step does not change")
    return result
