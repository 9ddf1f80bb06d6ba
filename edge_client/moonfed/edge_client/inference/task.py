"""The commands of a process that runs a released model: `predict` and `score`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.edge_client.inference.model import Model
from moonfed.edge_client.state.model_files import CHUNK
from moonfed.edge_client.worker.shared_samples import map_samples
from moonfed.sandbox.ipc import ParentPipe
from moonfed.sandbox.shared_predictions import answer
from moonfed.tasks.sample_errors import sample_errors

Execute = Callable[[str, dict[str, Any]], dict[str, Any]]


def model_task(load: Callable[[], Model], settings: Mapping[str, Any], parent: ParentPipe) -> Execute:
    """Return the function that executes a parent's commands with one model, loaded for the first of them."""
    spec, target = InputSpec.from_document(settings["input"]), TargetSpec.from_document(settings["target"])
    file, loaded = settings["file"], list[Model]()

    def model() -> Model:
        if not loaded:
            loaded.append(load())
        return loaded[0]

    def predict(samples: int) -> dict[str, Any]:
        return answer(model().predict, spec, file, settings["results"], samples)

    def score(samples: int, held_out: int, files: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """Send the error on each sample of the holdout; without one compute any answer."""
        holdout = map_samples(file, spec, target, samples, held_out, files)[1]
        if not held_out:
            model().predict(np.zeros((1, *spec.shape), spec.dtype))
        for start in range(0, held_out, CHUNK):
            chunk = slice(start, start + CHUNK)
            inputs, targets = holdout.chunk(chunk)
            errors = sample_errors(target.kind, model().predict(inputs), targets, inputs)
            parent.send("progress", errors=errors.astype("<f4").tobytes().hex())
        return {"kind": "scored"}

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        return score(**fields) if kind == "score" else predict(**fields)

    return execute
