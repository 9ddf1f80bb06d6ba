"""Compares an ONNX graph with the plan it belongs to, on real inputs: what is served must be what was trained."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from moonfed.errors import InvalidInput, MoonfedError
from moonfed.export.scoring import Predictor
from moonfed.manifest import Manifest
from moonfed.plan import Plan
from moonfed.samples import Inputs
from moonfed.tensors import Vector, split

BOUND = 1e-5  # of the largest difference between two probabilities
BATCHES = (1, 5, 32)  # the batch dimension is dynamic: one size alone would not show a graph that fixed it


def require_parity(graph: bytes, plan: Plan, inputs: Inputs, *, bound: float = BOUND) -> float:
    """The largest difference between the probabilities of the graph and of the plan as it is now.

    `inputs`: raw samples [N, …], of which 32 are used. Raises InvalidInput for fewer, MoonfedError beyond the bound.
    """
    if len(inputs) < max(BATCHES):
        raise InvalidInput(f"data hold {len(inputs)} samples; the comparison with the plan needs {max(BATCHES)}")
    difference = largest_difference(graph, plan, inputs)
    if not difference <= bound:  # NaN is beyond every bound
        raise MoonfedError(
            f"the ONNX graph's probabilities differ from the plan's by {difference:.3g}; at most {bound:g} is allowed"
        )
    return difference


def largest_difference(graph: bytes, plan: Plan, inputs: Inputs) -> float:
    """The largest absolute difference over batches of 1, 5 and 32 samples."""
    predictor = Predictor(graph)
    differences = []
    for size in BATCHES:
        batch = inputs[:size]
        expected = plan.predict(torch.from_numpy(np.ascontiguousarray(batch))).cpu().numpy()
        differences.append(float(np.abs(predictor.predict(batch) - expected).max()))
    return float(np.max(differences))  # unlike max(), it lets no NaN pass


def give_model(
    plan: Plan, model: Vector, manifest: Manifest, hyperparameters: Mapping[str, float] | None = None
) -> None:
    """Begins a round of the plan with a model, so that it predicts with it."""
    tensors = [torch.from_numpy(np.array(tensor)) for tensor in split(model, manifest.tensors).values()]
    plan.begin_round(tensors, [], {}, hyperparameters or manifest.training.hyperparameters)
