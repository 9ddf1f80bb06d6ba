"""The interface of a loaded model."""

from __future__ import annotations

from typing import Protocol

from moonfed.data.data_set import Inputs
from moonfed.sandbox.shared_predictions import Outputs as Outputs


class Model(Protocol):
    """A model that is ready to answer."""

    def predict(self, inputs: Inputs) -> Outputs:
        """Compute the outputs [N, …] of checked inputs [N, …]; raise MoonfedError if that fails."""

    def close(self) -> None:
        """Free what the model holds; raise nothing."""
