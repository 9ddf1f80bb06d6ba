"""How much memory a step of training takes for each sample, counted where the network is still a module of its own."""

from __future__ import annotations

import copy

import torch

from moonfed.export.network import Network

FEW, MORE = 4, 8  # samples in two batches, whose difference leaves out what does not depend on the batch


def activation_bytes(network: Network, inputs: torch.Tensor) -> int:
    """What autograd keeps of each sample between a forward and a backward pass, in float32.

    `inputs`: at least 8 raw samples [B, …]. The network is not changed.
    """
    trained = copy.deepcopy(network).train()
    kept = [_kept_bytes(trained, inputs[:count]) for count in (FEW, MORE)]
    return max(0, kept[1] - kept[0]) // (MORE - FEW)


def _kept_bytes(network: Network, inputs: torch.Tensor) -> int:
    """Each piece of memory once, however many operations keep it."""
    sizes: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits_BC = network(inputs)  # noqa: N806 - alive, so that no memory is given out twice
        loss = logits_BC.logsumexp(1).sum()
    del loss
    return sum(sizes.values())
