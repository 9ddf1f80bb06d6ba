"""A bundle's plan in the sandboxed process, where it predicts with a release's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from moonfed.edge_client.inference.task import Execute, model_task
from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.sandbox.ipc import ParentPipe
from moonfed.sandbox.plan_task import PlanModel


def open_task(settings: dict[str, Any], _output: Path, parent: ParentPipe) -> Execute:
    """Return the function that executes the commands `predict` and `score`."""

    def load() -> PlanModel:
        if settings["threads"] is not None:
            torch.set_num_threads(settings["threads"])
        require_accelerator(settings["accelerator"])
        return PlanModel(Path(settings["directory"]), settings["accelerator"])

    return model_task(load, settings, parent)
