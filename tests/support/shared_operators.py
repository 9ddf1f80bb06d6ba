"""The operators of ONNX graphs: torch registers them anew for each export, which takes 0.4 s."""

from __future__ import annotations

import functools
import sys

MODULE = "torch.onnx._internal.exporter._registration"


def share_operators() -> bool:
    """Register the operators once from now on, and return True, if the process has imported torch's exporter."""
    if MODULE not in sys.modules:
        return False
    registry = sys.modules[MODULE].ONNXRegistry
    registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))
    return True
