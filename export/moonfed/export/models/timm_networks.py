"""timm's networks for images, without their classifiers."""

from __future__ import annotations

import difflib
from typing import Any

import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.errors import InvalidInput
from moonfed.export.models.parts import Encoder
from moonfed.export.resizing import resized
from moonfed.export.torchvision_import import import_timm
from moonfed.user_code import describe_error


def timm_encoder(name: str, sample: InputSpec) -> Encoder:
    """Build a network of timm without its classifier, for the images' size and channels."""
    timm = import_timm()
    model = f"timm:{name}"
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models())
        hint = f"; near it are {', '.join(near)}" if near else ""
        raise InvalidInput(field="model", value=model, rest=f", which is not in timm.list_models(){hint}")
    sides = [resized(side) for side in sample.shape[:2]]
    try:
        fixed = timm.get_pretrained_cfg(name).fixed_input_size
        options = {"img_size": sides} if fixed else {}
        encoder = timm.create_model(
            name, pretrained=False, num_classes=0, in_chans=sample.shape[2], scriptable=True, **options
        )
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:  # timm checks few arguments
        reason = f"cannot be built for images of {sides[0]}x{sides[1]}: {describe_error(error)}"
        raise InvalidInput(field="model", value=model, rest=f", which {reason}") from error
    _replace_patches(encoder, timm.layers.PatchEmbed)
    return encoder, getattr(encoder, "head_hidden_size", encoder.num_features)


class Patches(nn.Module):
    """timm's PatchEmbed of images of one size, without its attribute of a class that no plan may have."""

    def __init__(self, layer: Any) -> None:  # noqa: ANN401 - timm is untyped
        super().__init__()
        self.proj, self.norm = layer.proj, layer.norm
        self.sequence, self.last = bool(layer.flatten), layer.output_fmt == "NHWC"

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return patches [B, N, D], or a grid of them, whose channels come second or last."""
        patches: torch.Tensor = self.proj(images)
        if self.sequence:
            patches = patches.flatten(2).transpose(1, 2)
        elif self.last:
            patches = patches.permute(0, 2, 3, 1)
        found: torch.Tensor = self.norm(patches)
        return found


def _replace_patches(module: nn.Module, kind: type[nn.Module]) -> None:
    for name, child in module.named_children():
        if type(child) is kind and child.output_fmt in ("NCHW", "NHWC") and not child.dynamic_img_pad:
            setattr(module, name, Patches(child))
        else:
            _replace_patches(child, kind)
