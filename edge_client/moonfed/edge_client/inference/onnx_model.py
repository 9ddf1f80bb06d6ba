"""A released ONNX file in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from moonfed.blobs.tensors import TensorSpec, Vector, open_model, split
from moonfed.bundle.manifest import graph_name
from moonfed.data.data_set import Inputs
from moonfed.edge_client.inference.model import Outputs
from moonfed.errors import InvalidInput, MoonfedError
from moonfed.models.onnx_runtime import SessionSettings, error_text, open_session

INPUT = "inputs"


class OnnxModel:
    """An ONNX Runtime session. Calls may overlap."""

    def __init__(
        self,
        file: Path,
        output: str,
        shape: tuple[int, ...],
        settings: SessionSettings,
        own: Mapping[str, Vector] | None = None,
    ) -> None:
        """Load a file with an output of that name, and its shape for one sample.

        `own`: this device's tensors, by their names in the graph.
        Raises MoonfedError if ONNX Runtime rejects it, Unavailable if it lacks the provider.
        """
        self._session, self._output, self._shape = open_session(file.read_bytes(), settings, own or {}), output, shape
        names = [[node.name for node in nodes] for nodes in (self._session.get_inputs(), self._session.get_outputs())]
        if names[0] != [INPUT] or output not in names[1]:
            raise InvalidInput(f"the model has inputs {names[0]} and outputs {names[1]}; it must have inputs and "
                               f"{output}")  # fmt: skip

    def predict(self, inputs: Inputs) -> Outputs:
        """Compute the outputs [N, …] of raw samples [N, …]."""
        try:
            (found,) = self._session.run([self._output], {INPUT: inputs})
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise MoonfedError(error_text(error)) from error
        outputs = np.asarray(found, np.float32)
        expected = (len(inputs), *self._shape)
        if outputs.shape != expected:
            raise MoonfedError(f"the model returned shape {list(outputs.shape)}; it must be {list(expected)}")
        return outputs

    def close(self) -> None:
        """Do nothing: the session is freed with its last user."""


def own_tensors(file: Path | None, specs: Sequence[TensorSpec]) -> dict[str, Vector]:
    """Return this device's tensors of a file, by their names in the graph; none without a file."""
    if file is None:
        return {}
    vector = np.array(open_model(file, specs))
    return {graph_name(name): np.ascontiguousarray(tensor) for name, tensor in split(vector, specs).items()}
