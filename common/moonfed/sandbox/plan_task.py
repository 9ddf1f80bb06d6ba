"""A bundle's plan in the sandbox, where it predicts with given weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from moonfed.blobs.tensors import open_model, split
from moonfed.bundle.manifest import MANIFEST_FILE, PLAN_FILE, InputSpec, Manifest
from moonfed.data.data_set import Inputs
from moonfed.models.release_manifest import WEIGHTS_FILE
from moonfed.plan.interface import load_plan
from moonfed.sandbox.ipc import ParentPipe
from moonfed.sandbox.shared_predictions import Outputs, answer


class PlanModel:
    """A plan that was given a model's weights."""

    def __init__(self, directory: Path, accelerator: str = "cpu") -> None:
        """`directory`: of the manifest, the plan and the weights."""
        manifest = Manifest.from_bytes((directory / MANIFEST_FILE).read_bytes())
        weights = np.array(open_model(directory / WEIGHTS_FILE, manifest.tensors))
        self._plan = load_plan(directory / PLAN_FILE, accelerator)
        tensors = [torch.from_numpy(values) for values in split(weights, manifest.tensors).values()]
        self._plan.begin_round(tensors, [], {}, manifest.training.hyperparameters)

    def predict(self, inputs: Inputs) -> Outputs:
        """Compute the outputs [N, …] of raw samples [N, …]."""
        with torch.no_grad():
            found: Outputs = self._plan.predict(torch.from_numpy(inputs)).cpu().float().numpy()
        return found

    def close(self) -> None:
        """Do nothing: the process ends."""


def open_task(settings: dict[str, Any], _output: Path, _parent: ParentPipe) -> Callable[..., dict[str, Any]]:
    """Return the function that executes the command `predict`."""
    spec, model = InputSpec.from_document(settings["input"]), PlanModel(Path(settings["directory"]))

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        return answer(model.predict, spec, settings["file"], settings["results"], **fields)

    return execute
