"""A gRPC inference server that does no work: the same stubs and threads as moonfed's, and a constant response.

`python -m benchmarks.load.no_op_server MODEL.onnx` runs the model for each request, without checks, batching or
statistics: the upper bound for a server of this kind.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import onnxruntime
from tritonclient.grpc import service_pb2, service_pb2_grpc

THREADS = 2  # the initial number of moonfed's server
CLASSES = 10


class NoOpInference(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Returns one row of zeros per input row, or the model's output."""

    def __init__(self, model: str | None) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = model and onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def ModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:
        pixels = service_pb2.ModelMetadataResponse.TensorMetadata(
            name="inputs", datatype="UINT8", shape=[-1, 32, 32, 3]
        )
        return service_pb2.ModelMetadataResponse(name=request.name, inputs=[pixels])

    def ModelInfer(self, request: Any, context: grpc.ServicerContext) -> Any:
        rows = request.inputs[0].shape[0]
        found = np.zeros((rows, CLASSES), np.float32)
        if self._session:
            pixels = np.frombuffer(request.raw_input_contents[0], np.uint8).reshape(request.inputs[0].shape)
            (found,) = self._session.run(None, {"inputs": pixels})
        answer = service_pb2.ModelInferResponse(model_name=request.model_name, model_version="1")
        answer.outputs.add(name="probabilities", datatype="FP32", shape=[rows, CLASSES])
        answer.raw_output_contents.append(found.tobytes())
        return answer


def main() -> None:
    server = grpc.server(ThreadPoolExecutor(THREADS))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
        NoOpInference(sys.argv[1] if sys.argv[1:] else None), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()  # until the parent closes it or exits
    server.stop(None).wait()


if __name__ == "__main__":
    main()
