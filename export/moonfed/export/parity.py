"""The parity check of an ONNX graph and its plan on real inputs: the served model must be the trained one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from moonfed.blobs.tensors import Vector, split
from moonfed.bundle.manifest import Manifest
from moonfed.data.data_set import Inputs
from moonfed.errors import InvalidInput, MoonfedError
from moonfed.export.scoring import Predictor
from moonfed.plan.interface import Plan
from moonfed.sandbox.shared_predictions import Outputs

BOUND = 1e-5  # for the largest difference between two outputs
Predict = Callable[[Inputs], Outputs]

BATCHES = (1, 5, 32)  # several, to detect a graph whose batch dimension is fixed


def require_parity(graph: bytes, plan: Predict, inputs: Inputs, *, bound: float = BOUND) -> float:
    """Return the largest difference between the outputs of the graph and of a plan with its current model.

    `plan`: computes its outputs. `inputs`: raw samples [N, …], of which 32 are used. Raises InvalidInput for
    fewer, MoonfedError beyond the bound.
    """
    if len(inputs) < max(BATCHES):
        raise InvalidInput(f"data hold {len(inputs)} samples; the comparison with the plan needs {max(BATCHES)}")
    difference = largest_difference(graph, plan, inputs)
    if exceeds(difference, bound):
        raise MoonfedError(
            f"the ONNX graph's outputs differ from the plan's by {difference:.3g}; at most {bound:g} is allowed"
        )
    return difference


def exceeds(difference: float, bound: float) -> bool:
    """Return whether a difference is greater than the bound, or NaN."""
    return not difference <= bound


def largest_difference(graph: bytes, plan: Predict, inputs: Inputs) -> float:
    """Return the largest difference over batches of 1, 5 and 32 samples; relative, for values above 1."""
    predictor = Predictor(graph)
    differences = []
    for size in BATCHES:
        batch = inputs[:size]
        planned = plan(np.ascontiguousarray(batch))
        scale = max(1.0, float(np.abs(planned).max()))  # prices of houses have seven digits in float32, too
        differences.append(float(np.abs(predictor.predict(batch) - planned).max()) / scale)
    return float(np.max(differences))  # unlike max(), it propagates NaN


def predictions_of(plan: Plan) -> Predict:
    """Return the function by which a plan in this process predicts."""
    return lambda inputs: plan.predict(torch.from_numpy(inputs)).cpu().numpy()


def load_model(
    plan: Plan, model: Vector, manifest: Manifest, hyperparameters: Mapping[str, float] | None = None
) -> None:
    """Load a model into the plan, by beginning a round, so that the plan predicts with it."""
    tensors = [torch.from_numpy(np.array(tensor)) for tensor in split(model, manifest.tensors).values()]
    plan.begin_round(tensors, [], {}, hyperparameters or manifest.training.hyperparameters)
