"""Position embeddings of vision transformers, interpolated for images of another size.

As torchvision.models.vision_transformer.interpolate_embeddings does: bicubic over the square grid of patches, with the
corners aligned; what belongs to the class token is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import torch
import torch.nn.functional as F

NAMES = ("pos_embedding", "pos_embed", "position_embeddings")  # torchvision's, timm's and Hugging Face's
CLASS_TOKENS = (1, 0, 2)  # that may precede the patches; 2: with a token for distillation


@dataclass(frozen=True, slots=True)
class Interpolated:
    """A position embedding for another grid of patches."""

    tensor: torch.Tensor
    before: int  # patches along a side
    after: int


def interpolated(name: str, embedding_1NW: torch.Tensor, shape: torch.Size) -> Interpolated | None:
    """Return a tensor [1, N, width] in another shape [1, M, width]; None unless both are square grids of patches."""
    ranks = embedding_1NW.dim() == len(shape) == 3
    if not (name.endswith(NAMES) and ranks and embedding_1NW.shape[::2] == shape[::2]):
        return None
    for tokens in CLASS_TOKENS:
        before, after = (isqrt(max(0, length - tokens)) for length in (embedding_1NW.shape[1], shape[1]))
        if (tokens + before**2, tokens + after**2) == (embedding_1NW.shape[1], shape[1]):
            kept_1KW, patches_1NW = embedding_1NW[:, :tokens], embedding_1NW[:, tokens:]
            grid_1WHH = patches_1NW.transpose(1, 2).reshape(1, -1, before, before)
            resized_1WHH = F.interpolate(grid_1WHH, size=(after, after), mode="bicubic", align_corners=True)
            return Interpolated(torch.cat([kept_1KW, resized_1WHH.flatten(2).transpose(1, 2)], dim=1), before, after)
    return None
