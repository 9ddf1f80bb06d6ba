"""Frozen encoders, which have their own max-pool, compared with the network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from moonfed.export.frozen_encoder import MaxPool2x2, frozen_encoder
from moonfed.export.network import Network
from moonfed.export.preprocessing import ImagePreprocessing

REPLACED = {
    "usual": nn.MaxPool2d(2),
    "as pairs": nn.MaxPool2d((2, 2), (2, 2), (0, 0), (1, 1)),
}
KEPT = {
    "three wide": nn.MaxPool2d(3),
    "one apart": nn.MaxPool2d(2, 1),
    "padded": nn.MaxPool2d(2, padding=1),
    "dilated": nn.MaxPool2d(2, dilation=2),
    "rounded up": nn.MaxPool2d(2, ceil_mode=True),
}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(8, 8), (9, 7), (2, 3)])
@pytest.mark.parametrize("pool", [*REPLACED, *KEPT])
def test_a_frozen_encoders_pool_matches_the_networks(
    pool: str, shape: tuple[int, int], memory_format: torch.memory_format
) -> None:
    network = Network(
        ImagePreprocessing((16, 16, 3), [0.0], [1.0]),
        nn.Sequential(nn.Sequential({**REPLACED, **KEPT}[pool]), nn.Flatten()),
        nn.Identity(),
        nn.Identity(),
    )
    frozen = frozen_encoder(network)
    assert any(isinstance(module, MaxPool2x2) for module in frozen.modules()) == (pool in REPLACED)
    assert not any(isinstance(module, MaxPool2x2) for module in network.modules())
    images = torch.randn(4, 3, *shape, generator=torch.Generator().manual_seed(1)).to(memory_format=memory_format)
    images[0, 0] = -torch.inf
    images[1, 1, 1, 1] = torch.nan
    try:
        expected = network.encode(images)
    except RuntimeError:  # pictures too small for it
        with pytest.raises(RuntimeError):
            frozen.encode(images)
        return
    assert torch.equal(frozen.encode(images).nan_to_num(nan=1e9), expected.nan_to_num(nan=1e9))
    assert torch.isnan(expected).any() == torch.isnan(frozen.encode(images)).any()
