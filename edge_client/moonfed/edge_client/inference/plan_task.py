"""A bundle's plan in the sandboxed process, where it predicts with a release's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from moonfed.data.data_set import Inputs
from moonfed.edge_client.inference.model import Probabilities
from moonfed.edge_client.inference.task import Execute, model_task
from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.edge_client.worker.ipc import ParentPipe
from moonfed.manifest import MANIFEST_FILE, PLAN_FILE, Manifest
from moonfed.plan import load_plan
from moonfed.release_manifest import WEIGHTS_FILE
from moonfed.tensors import open_model, split


class PlanModel:
    """A plan that was given a release's weights."""

    def __init__(self, directory: Path, accelerator: str) -> None:
        require_accelerator(accelerator)
        manifest = Manifest.from_bytes((directory / MANIFEST_FILE).read_bytes())
        weights = np.array(open_model(directory / WEIGHTS_FILE, manifest.tensors))
        self._plan = load_plan(directory / PLAN_FILE, accelerator)
        tensors = [torch.from_numpy(values) for values in split(weights, manifest.tensors).values()]
        self._plan.begin_round(tensors, [], {}, manifest.training.hyperparameters)

    def predict(self, inputs: Inputs) -> Probabilities:
        """Compute the probabilities [N, C] of raw samples [N, …]."""
        with torch.no_grad():
            found: Probabilities = self._plan.predict(torch.from_numpy(inputs)).cpu().float().numpy()
        return found

    def close(self) -> None:
        """Do nothing: the process ends."""


def open_task(settings: dict[str, Any], _output: Path, parent: ParentPipe) -> Execute:
    """Return the function that executes the commands `predict` and `score`."""

    def load() -> PlanModel:
        if settings["threads"] is not None:
            torch.set_num_threads(settings["threads"])
        return PlanModel(Path(settings["directory"]), settings["accelerator"])

    return model_task(load, settings, parent)
