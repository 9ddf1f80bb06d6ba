"""KServe's Python server with ONNX Runtime, written as in its guide: `MODEL.onnx NAME GRPC_PORT HTTP_PORT`.

Its per-request log lines are switched off, because moonfed's server writes none.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import onnxruntime
from kserve import InferOutput, InferResponse, Model, ModelServer


class OnnxModel(Model):  # type: ignore[misc]
    """One session with one thread per run, like moonfed's server."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.ready = True

    async def get_input_types(self) -> list[dict[str, Any]]:
        return [{"name": "inputs", "datatype": "UINT8", "shape": [-1, 32, 32, 3]}]

    async def get_output_types(self) -> list[dict[str, Any]]:
        return [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}]

    def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> InferResponse:
        (probabilities,) = self._session.run(None, {"inputs": payload.inputs[0].as_numpy()})
        output = InferOutput("probabilities", list(probabilities.shape), "FP32")
        output.set_data_from_numpy(probabilities)
        return InferResponse(payload.id, self.name, [output])


if __name__ == "__main__":
    path, name, grpc_port, http_port = sys.argv[1:]
    ports = {"grpc_port": int(grpc_port), "http_port": int(http_port)}
    server = ModelServer(**ports, enable_docs_url=False, enable_latency_logging=False)
    logging.getLogger("kserve").setLevel(logging.WARNING)
    server.start([OnnxModel(name, path)])
