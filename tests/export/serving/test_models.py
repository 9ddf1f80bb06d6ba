from __future__ import annotations

from pathlib import Path

import onnxruntime

from export.serving.messages import InferRequest
from export.serving.models import Models, ServingSettings
from tests.export.serving.repositories import batch_of, linear, write_model


def test_an_answer_is_bit_identical_to_onnx_runtime_called_directly(tmp_path: Path) -> None:
    directory = write_model(tmp_path, "linear", 1, linear())
    inputs = batch_of(5)
    response = Models(tmp_path, ServingSettings()).infer(InferRequest(model="linear", inputs={"inputs": inputs}))
    direct = onnxruntime.InferenceSession(directory / "1" / "model.onnx", providers=["CPUExecutionProvider"])
    assert response.outputs["probabilities"].tobytes() == direct.run(None, {"inputs": inputs})[0].tobytes()
    assert (response.model, response.version) == ("linear", "1")
