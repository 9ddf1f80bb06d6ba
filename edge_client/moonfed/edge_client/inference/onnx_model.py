"""A released ONNX file in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from moonfed.data.data_set import Inputs
from moonfed.edge_client.inference.model import Probabilities
from moonfed.errors import InvalidInput, MoonfedError
from moonfed.models.onnx_runtime import SessionSettings, error_text, open_session

INPUT, OUTPUT = "inputs", "probabilities"


class OnnxModel:
    """An ONNX Runtime session. Calls may overlap."""

    def __init__(self, file: Path, classes: int, settings: SessionSettings) -> None:
        """Load a file; raise MoonfedError if ONNX Runtime rejects it, Unavailable if it lacks the provider."""
        self._session, self._classes = open_session(file.read_bytes(), settings), classes
        names = [[node.name for node in nodes] for nodes in (self._session.get_inputs(), self._session.get_outputs())]
        if names[0] != [INPUT] or OUTPUT not in names[1]:
            raise InvalidInput(f"the model has inputs {names[0]} and outputs {names[1]}; it must have inputs and "
                               "probabilities")  # fmt: skip

    def predict(self, inputs: Inputs) -> Probabilities:
        """Compute the probabilities [N, C] of raw samples [N, …]."""
        try:
            (found,) = self._session.run([OUTPUT], {INPUT: inputs})
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise MoonfedError(error_text(error)) from error
        probabilities = np.asarray(found, np.float32)
        if probabilities.shape != (len(inputs), self._classes):
            raise MoonfedError(
                f"the model returned shape {list(probabilities.shape)}; it must be [{len(inputs)}, {self._classes}]"
            )
        return probabilities

    def close(self) -> None:
        """Do nothing: the session is freed with its last user."""
