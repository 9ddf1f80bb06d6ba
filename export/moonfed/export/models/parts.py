"""The parts that builders of the model zoo return, and layers that families share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

Parts = tuple[nn.Module, nn.Module, nn.Module]  # encoder, projection head, output layer
Encoder = tuple[nn.Module, int]  # and the width of its features; head and output layer are added to it


def resize(maps_BCHW: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Interpolate maps to another size."""
    size = [height, width]
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        # The operator itself: the source of `interpolate` names one that older releases of torch lack.
        found: torch.Tensor = torch.ops.aten.upsample_bilinear2d(maps_BCHW, size, False)
        return found
    return F.interpolate(maps_BCHW, size, mode="bilinear", align_corners=False)
