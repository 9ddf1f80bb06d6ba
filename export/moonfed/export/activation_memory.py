"""The activation memory per sample of a training step, measured on the uncompiled network."""

from __future__ import annotations

import copy

import torch

from moonfed.export.network import Network

FEW, MORE = 4, 8  # two batch sizes, whose difference cancels memory that does not depend on the batch


def activation_bytes(network: Network, inputs: torch.Tensor) -> int:
    """Return the bytes that autograd saves per sample between a forward and a backward pass, in float32.

    `inputs`: at least 8 raw samples [B, …]. The network is not modified.
    """
    trained = copy.deepcopy(network).train()
    saved = [_saved_bytes(trained, inputs[:count]) for count in (FEW, MORE)]
    return max(0, saved[1] - saved[0]) // (MORE - FEW)


def _saved_bytes(network: Network, inputs: torch.Tensor) -> int:
    """Sum the saved storages, each once however many operations save it."""
    sizes: dict[int, int] = {}

    def record(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        outputs = network(inputs)  # kept alive, so that no memory is reused
        loss = outputs.logsumexp(1).sum()
    del loss
    return sum(sizes.values())
