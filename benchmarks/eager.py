"""The eager baseline: local training as the MOON paper describes it, in usual PyTorch style.

The network runs three times in every step (trained, global and previous model), torch.optim.SGD updates the weights,
and everything is float32 by default. The loop shares only the network's layers with the plan: images are scaled here,
once per step, contiguous like those of torchvision's ToTensor. The data are already on the accelerator, the best case
for such a loop.
Source: Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021), algorithm 1.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812

from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.optimiser import Sgd

BATCH = 64
MU, TAU = 5.0, 0.5  # the paper's values for CIFAR-10
SGD = Sgd()


def train_eagerly(
    network: Network,
    previous: Network | None,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    *,
    epochs: int,
    memory_format: torch.memory_format = torch.contiguous_format,
    mixed: bool = False,
) -> list[torch.Tensor]:
    """Train one round; return the trained tensors on the CPU, ordered by name.

    `network`: the global model. `previous`: the device's model of the previous round for MOON, None for FedAvg.
    `inputs` [N, H, W, C] uint8, `labels` [N] int64; the last partial batch of an epoch is dropped. `mixed`: bfloat16
    through torch.autocast.
    """
    local = _copy(network, labels.device, memory_format).train()
    encoders = [network, previous] if previous else []
    frozen = [_copy(encoder, labels.device, memory_format).eval() for encoder in encoders]
    optimiser = torch.optim.SGD(
        local.parameters(), lr=SGD.learning_rate, momentum=SGD.momentum, weight_decay=SGD.weight_decay
    )
    whole = len(labels) - len(labels) % BATCH
    for _ in range(epochs):
        total = torch.zeros((), device=labels.device)
        for index in torch.randperm(len(labels))[:whole].to(labels.device).view(-1, BATCH):
            optimiser.zero_grad()
            with torch.autocast(labels.device.type, torch.bfloat16, enabled=mixed):
                loss = _loss(local, frozen, scaled(inputs[index]), labels[index])
            torch.autograd.backward(loss)
            optimiser.step()
            total += loss.detach()
        float(total)  # as is usual, the loss is read once per epoch
    return [tensor.detach().cpu() for tensor in exchanged_tensors(local).values()]


def _copy(network: Network, device: torch.device, memory_format: torch.memory_format) -> Network:
    moved: Network = copy.deepcopy(network).to(device=device, memory_format=memory_format)  # type: ignore[call-overload]
    return moved


def scaled(pixels: torch.Tensor) -> torch.Tensor:
    """Return images as torchvision's ToTensor does."""
    return pixels.permute(0, 3, 1, 2).contiguous().to(torch.float32) / 255.0


def _represent(network: Network, images: torch.Tensor) -> torch.Tensor:
    z: torch.Tensor = network.projection_head(network.encoder(images).flatten(1))
    return z


def _loss(local: Network, frozen: list[Network], images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    z = _represent(local, images)
    loss = F.cross_entropy(local.outputs(z), labels)
    if not frozen:
        return loss
    with torch.no_grad():
        z_global, z_previous = (_represent(encoder, images) for encoder in frozen)
    similarities = torch.stack([F.cosine_similarity(z, z_global), F.cosine_similarity(z, z_previous)], dim=1) / TAU
    return loss + MU * F.cross_entropy(similarities, torch.zeros_like(labels))
