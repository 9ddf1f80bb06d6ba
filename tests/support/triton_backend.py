"""A Triton backend in Python that runs ONNX Runtime, in place of Triton's own, which only NVIDIA's images contain.

Triton runs it in processes of its own, by the interpreter of its stub. Tensors cross by DLPack, since the stub knows
numpy's arrays from before numpy 2 only; so there are numbers, and no strings. The stub renames DLPack's capsules, of
which numpy complains in the log; what they hold is freed all the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = os.environ["PACKAGES"].split(os.pathsep)  # numpy's and ONNX Runtime's place

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import triton_python_backend_utils as triton  # noqa: E402 - it looks for numpy

Request = Any  # Triton's classes have no types
Response = Any


class TritonPythonModel:
    """The class that Triton instantiates for each instance of a version."""

    def initialize(self, settings: dict[str, str]) -> None:
        """Load the version's model.onnx."""
        config = json.loads(settings["model_config"])
        directory = Path(settings["model_repository"]) / settings["model_version"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._name = f"{config['name']}:{settings['model_version']}"
        self._session = onnxruntime.InferenceSession(
            str(directory / config["default_model_filename"]), options, providers=["CPUExecutionProvider"]
        )

    def execute(self, requests: Sequence[Request]) -> list[Response]:
        """Answer the requests of a batch one by one."""
        print(f"ran {self._name} {len(requests)}", flush=True)  # into Triton's log
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Response:
        feeds = {tensor.name(): np.from_dlpack(tensor) for tensor in request.inputs()}
        names = list(request.requested_output_names())
        try:
            found = self._session.run(names, feeds)
        except Exception as error:  # whatever it is, Triton tells the client
            return triton.InferenceResponse(error=triton.TritonError(f"onnx runtime error: {error}"))
        return triton.InferenceResponse(list(map(triton.Tensor.from_dlpack, names, found)))
