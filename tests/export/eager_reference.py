"""The local objectives once more, in eager PyTorch with torch.optim.SGD: what a compiled plan is compared with."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch

from export.network import Network, exchanged_tensors

Model = list[torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]


def weights_of(network: Network) -> Model:
    return [tensor.detach().clone() for tensor in exchanged_tensors(network).values()]


def network_with(network: Network, model: Model) -> Network:
    other = copy.deepcopy(network)
    with torch.no_grad():
        for target, source in zip(exchanged_tensors(other).values(), model, strict=True):
            target.copy_(source)
    return other


def trained_eagerly(
    network: Network,
    model: Model,
    previous_models: Sequence[Model],
    batches: Sequence[Batch],
    hyperparameters: Mapping[str, float],
) -> tuple[Model, list[float]]:
    """The model and the losses after one step for each batch; FedAvg if the hyperparameters have no mu, else MOON."""
    local = network_with(network, model).train()
    frozen = [network_with(network, other).eval() for other in (model, *previous_models)]
    optimiser = torch.optim.SGD(
        local.parameters(),
        lr=hyperparameters["learning_rate"],
        momentum=hyperparameters["momentum"],
        weight_decay=hyperparameters["weight_decay"],
    )
    losses = []
    for inputs, labels in batches:
        optimiser.zero_grad()
        z = local.represent(inputs)
        log_probabilities = torch.log_softmax(local.classify(z), dim=1)
        loss = -log_probabilities[torch.arange(len(labels)), labels].mean()
        if "mu" in hyperparameters and previous_models:
            with torch.no_grad():
                references = [other.represent(inputs) for other in frozen]
            loss = loss + hyperparameters["mu"] * contrastive(z, references, hyperparameters["tau"])
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(float(loss.detach()))
    return weights_of(local), losses


def contrastive(z: torch.Tensor, references: Sequence[torch.Tensor], tau: float) -> torch.Tensor:
    """MOON's term as the paper prints it (section 3.3)."""
    similarities = [(z * other).sum(1) / (z.norm(dim=1) * other.norm(dim=1)) for other in references]
    exponentials = [torch.exp(similarity / tau) for similarity in similarities]
    denominator = torch.stack(exponentials).sum(0)
    return -torch.log(exponentials[0] / denominator).mean()
