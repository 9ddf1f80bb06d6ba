"""Frozen encoders: copies of a network that give representations and are never trained."""

from __future__ import annotations

import copy

import torch

from moonfed.export.network import Network


class MaxPool2x2(torch.nn.Module):
    """A 2x2 max-pool with stride 2 that does not say where its maxima were, which no one without gradients asks.

    torch's own always does, and compares number by number: this one is some ten times as fast on a CPU.
    """

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """[B, C, H, W] to [B, C, H/2, W/2], rounded down; or the same without B."""
        height, width = images_BCHW.size(-2) // 2 * 2, images_BCHW.size(-1) // 2 * 2
        rows = torch.maximum(images_BCHW[..., 0:height:2, :], images_BCHW[..., 1:height:2, :])
        return torch.maximum(rows[..., 0:width:2], rows[..., 1:width:2])


def frozen_encoder(network: Network) -> Network:
    """A copy in eval mode whose `encode` is the network's; it neither preprocesses nor classifies."""
    frozen = copy.deepcopy(network)
    frozen.preprocessing, frozen.output_layer = torch.nn.Identity(), torch.nn.Identity()
    for module in frozen.modules():
        for name, child in module.named_children():
            if _takes_largest_of_four(child):
                setattr(module, name, MaxPool2x2())
    return frozen.eval().requires_grad_(False)


def _takes_largest_of_four(module: torch.nn.Module) -> bool:
    if type(module) is not torch.nn.MaxPool2d or module.ceil_mode or module.return_indices:
        return False
    settings = (module.kernel_size, module.stride, module.padding, module.dilation)
    return all(given in (usual, (usual, usual)) for given, usual in zip(settings, (2, 2, 0, 1), strict=True))
