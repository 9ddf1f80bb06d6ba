"""The device: trains plans on local data, and predicts with releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import moonfed.models.no_telemetry  # noqa: F401 - before onnxruntime

if TYPE_CHECKING:
    from moonfed.edge_client.inference.predictor import Predictor

__all__ = ["Predictor"]


def __getattr__(name: str) -> object:
    """Import `Predictor` when it is first used: the agent, which imports this package too, must stay light."""
    if name == "Predictor":
        from moonfed.edge_client.inference.predictor import Predictor

        return Predictor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
