"""Prototypes and settings of plans that exchange them, and eager training to compare with."""

from __future__ import annotations

import pytest
import torch

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import FILES, Manifest, PlanSpec
from moonfed.bundle.target import class_target
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import Method
from moonfed.plan.training_spec import TrainingSpec
from tests.export.conftest import IMAGE, hyperparameters
from tests.support.eager_reference import Batch, Model, Term, cross_entropy, descend, network_with, weights_of
from tests.support.plan_rounds import TOLERANCE, WIDTH, Round, largest_difference, smooth_network

SMOOTH = smooth_network()
TAU, MU_MOON, MU_GLOB = 0.5, 5.0, 0.7


def settings(method: str = "fedssc", **others: float) -> dict[str, float]:
    return hyperparameters(**METHODS[method]().hyperparameters()) | {"mu_glob": MU_GLOB} | others


def prototypes(*absent: int) -> tuple[dict[str, Model], dict[int, torch.Tensor]]:
    """Return prototypes as a device receives them, and by class."""
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


def manifest(method: Method) -> Manifest:
    training = TrainingSpec(epochs=1, batch_size=1, hyperparameters=hyperparameters(**method.hyperparameters()))
    return Manifest(
        name="n", model="cnn", method="m", training=training,
        previous_models=1, input=IMAGE, target=class_target(("a", "b")), tensors=(),
        plan=PlanSpec(minimum_torch="2.4", built_with_torch="2.4", activation_bytes=0), schedules=method.schedules(),
        files={name: BlobRef("0" * 64, 0) for name in FILES},
    )  # fmt: skip
