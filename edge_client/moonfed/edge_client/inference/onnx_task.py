"""An ONNX file in the sandboxed process, where the agent tries a release before it installs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moonfed.bundle.manifest import OWN_FILE, InputSpec, output_shape, read_tensor_specs
from moonfed.bundle.target import TargetSpec
from moonfed.edge_client.inference.onnx_model import OnnxModel, own_tensors
from moonfed.edge_client.inference.task import Execute, model_task
from moonfed.models.onnx_runtime import SessionSettings
from moonfed.models.repository import MODEL_FILE
from moonfed.sandbox.ipc import ParentPipe


def open_task(settings: dict[str, Any], _output: Path, parent: ParentPipe) -> Execute:
    """Return the function that executes the commands `predict` and `score`."""
    spec, target = InputSpec.from_document(settings["input"]), TargetSpec.from_document(settings["target"])
    chosen = SessionSettings(intra_op_threads=settings["threads"] or 0)

    def load() -> OnnxModel:
        directory = Path(settings["directory"])
        file, specs = directory / OWN_FILE, read_tensor_specs(settings["personal"])
        own = own_tensors(file if file.exists() else None, specs)
        return OnnxModel(directory / MODEL_FILE, target.output, output_shape(spec, target), chosen, own)

    return model_task(load, settings, parent)
