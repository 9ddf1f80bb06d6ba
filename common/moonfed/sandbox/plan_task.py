"""A bundle's plan in the sandbox, where it predicts with given weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from moonfed.bundle.manifest import (
    FROZEN_FILE,
    MANIFEST_FILE,
    OWN_FILE,
    PERSONAL,
    PERSONAL_FILE,
    PLAN_NAMES,
    InputSpec,
    Manifest,
)
from moonfed.data.data_set import Inputs
from moonfed.models.release_manifest import WEIGHTS_FILE
from moonfed.plan.interface import load_plan
from moonfed.plan.tensors import read_tensors
from moonfed.sandbox.ipc import ParentPipe
from moonfed.sandbox.shared_predictions import Outputs, answer


class PlanModel:
    """A plan that was given a model's weights."""

    def __init__(self, directory: Path, accelerator: str = "cpu") -> None:
        """`directory`: of the manifest, one form of the plan, the weights and the other parts of the model."""
        manifest = Manifest.from_bytes((directory / MANIFEST_FILE).read_bytes())
        frozen = read_tensors(directory / FROZEN_FILE, manifest.frozen) if manifest.frozen else None
        plan = next(file for name in PLAN_NAMES.values() if (file := directory / name).exists())
        self._plan = load_plan(plan, accelerator, frozen=frozen)
        found = next((file for name in (OWN_FILE, PERSONAL_FILE) if (file := directory / name).exists()), None)
        own = {PERSONAL: read_tensors(found, manifest.personal)} if manifest.personal and found else {}
        model = read_tensors(directory / WEIGHTS_FILE, manifest.tensors)
        self._plan.begin_round(model, [], own, manifest.training.hyperparameters)

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
    return lambda kind, fields: answer(model.predict, spec, settings["file"], settings["results"], **fields)
