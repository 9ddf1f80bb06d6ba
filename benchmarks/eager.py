"""The plain alternative: local training as the MOON paper describes it, and as people write it in PyTorch.

The network runs three times in every step (the model in training, the global one, the previous one), torch.optim.SGD
moves the weights; by default everything is float32. It shares the network's layers with the plan, and nothing else:
pictures are scaled here, once per step, contiguous like those of torchvision's ToTensor. The data already lie on the
accelerator, which is the best that such a loop can have.
Source: Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021), algorithm 1.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812

from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.optimiser import Sgd

BATCH = 64
MU, TAU = 5.0, 0.5  # of the paper for CIFAR-10
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
    """One round; the trained tensors on the CPU, in order of their names.

    `network`: the global model. `previous`: this device's own of the round before, for MOON; None for FedAvg.
    `inputs` [N, H, W, C] uint8, `labels` [N] int64; an epoch's last partial batch is dropped. `mixed`: bfloat16 by
    torch.autocast.
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
                loss = _loss(local, frozen, _scaled(inputs[index]), labels[index])
            torch.autograd.backward(loss)
            optimiser.step()
            total += loss.detach()
        float(total)  # an epoch's loss is what people print
    return [tensor.detach().cpu() for tensor in exchanged_tensors(local).values()]


def _copy(network: Network, device: torch.device, memory_format: torch.memory_format) -> Network:
    moved: Network = copy.deepcopy(network).to(device=device, memory_format=memory_format)  # type: ignore[call-overload]
    return moved


def _scaled(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.permute(0, 3, 1, 2).contiguous().to(torch.float32) / 255.0


def _represent(network: Network, images: torch.Tensor) -> torch.Tensor:
    z: torch.Tensor = network.projection_head(network.encoder(images).flatten(1))
    return z


def _loss(local: Network, frozen: list[Network], images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    z = _represent(local, images)
    loss = F.cross_entropy(local.classify(z), labels)
    if not frozen:
        return loss
    with torch.no_grad():
        z_global, z_previous = (_represent(encoder, images) for encoder in frozen)
    similarities = torch.stack([F.cosine_similarity(z, z_global), F.cosine_similarity(z, z_previous)], dim=1) / TAU
    return loss + MU * F.cross_entropy(similarities, torch.zeros_like(labels))
