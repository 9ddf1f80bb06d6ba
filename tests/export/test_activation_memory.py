"""The activation memory per sample, compared with a count by hand."""

from __future__ import annotations

import torch

from moonfed.bundle.manifest import InputSpec
from moonfed.export.activation_memory import activation_bytes
from moonfed.export.network import Network
from moonfed.export.preprocessing import build_preprocessing


def test_activation_bytes_count_tensors_retained_for_gradients() -> None:
    """Count each layer's input once (the head's is the ReLU's output), and the loss's logits and value."""
    encoder = torch.nn.Sequential(torch.nn.Linear(6, 80), torch.nn.ReLU())
    network = Network(
        build_preprocessing(InputSpec(kind="features", shape=(6,))),
        encoder,
        torch.nn.Linear(80, 40),
        torch.nn.Linear(40, 3),
    )
    before = [parameter.clone() for parameter in network.parameters()]
    assert activation_bytes(network, torch.randn(8, 6)) == 4 * (6 + 80 + 40 + 3 + 1)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))
