"""The computation of `moonfed-client predict`, in the sandboxed process that loads the plan."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from moonfed.edge_client.predict import RESULT_FILE
from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.edge_client.state.finished_models import MODEL_FILE
from moonfed.edge_client.worker.ipc import ParentPipe
from moonfed.manifest import MANIFEST_FILE, PLAN_FILE, Manifest
from moonfed.plan import TorchScriptPlan, load_plan
from moonfed.tensors import open_model, split

BATCH = 64  # samples at once


def open_task(settings: dict[str, Any], output: Path, parent: ParentPipe) -> Callable[..., dict[str, Any]]:
    """Return the function that executes the command `predict`."""

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        require_accelerator(settings["accelerator"])
        if settings["threads"] is not None:
            torch.set_num_threads(settings["threads"])
        directory = Path(settings["directory"])
        manifest = Manifest.from_bytes((directory / MANIFEST_FILE).read_bytes())
        plan = _loaded(directory, manifest, settings["accelerator"])
        inputs = _inputs(settings["file"], settings["samples"], manifest)
        with (output / RESULT_FILE).open("wb") as file, torch.no_grad():
            for batch in torch.split(inputs, BATCH):
                file.write(plan.predict(batch).cpu().float().contiguous().numpy().data)
                parent.send("progress")
        return {"kind": "predicted"}

    return execute


def _inputs(file: int, samples: int, manifest: Manifest) -> torch.Tensor:
    memory = mmap.mmap(file, 0, access=mmap.ACCESS_COPY)
    values = np.frombuffer(memory, np.dtype(manifest.input.dtype)).reshape(samples, *manifest.input.shape)
    return torch.from_numpy(values)


def _loaded(directory: Path, manifest: Manifest, accelerator: str) -> TorchScriptPlan:
    weights = np.array(open_model(directory / MODEL_FILE, manifest.tensors))
    plan = load_plan(directory / PLAN_FILE, accelerator)
    tensors = [torch.from_numpy(values) for values in split(weights, manifest.tensors).values()]
    plan.begin_round(tensors, [], {}, manifest.training.hyperparameters)
    return plan
