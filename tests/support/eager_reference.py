"""The local objectives in eager PyTorch with torch.optim.SGD, to compare compiled plans with.

Losses are written sample by sample, as the papers print them. Nothing here is shared with `export.methods`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch

from moonfed.export.network import Network, exchanged_tensors

Model = list[torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]
Term = Callable[[Network, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # network, inputs, z, labels: a loss
AfterStep = Callable[[Network], None]


def weights_of(network: Network) -> Model:
    return [tensor.detach().clone() for tensor in exchanged_tensors(network).values()]


def parameters_of(network: Network) -> Model:
    """Return the trained parameters, in the manifest's order."""
    return [tensor for tensor in exchanged_tensors(network).values() if tensor.requires_grad]


def network_with(network: Network, model: Model) -> Network:
    other = copy.deepcopy(network)
    with torch.no_grad():
        for target, source in zip(exchanged_tensors(other).values(), model, strict=True):
            target.copy_(source)
    return other


def descend(
    local: Network,
    batches: Sequence[Batch],
    hyperparameters: Mapping[str, float],
    terms: Sequence[Term],
    after_step: AfterStep = lambda _: None,
    optimiser: torch.optim.Optimizer | None = None,
) -> list[float]:
    """Train the network in its current mode, one step per batch; the losses are the sums of the terms."""
    optimiser = optimiser or torch.optim.SGD(
        local.parameters(),
        lr=hyperparameters["learning_rate"],
        momentum=hyperparameters["momentum"],
        weight_decay=hyperparameters["weight_decay"],
    )
    losses = []
    for inputs, labels in batches:
        optimiser.zero_grad()
        z = local.represent(inputs)
        loss = torch.stack([term(local, inputs, z, labels) for term in terms]).sum()
        torch.autograd.backward(loss)
        optimiser.step()
        after_step(local)
        losses.append(float(loss.detach()))
    return losses


def trained_eagerly(
    network: Network,
    model: Model,
    previous_models: Sequence[Model],
    batches: Sequence[Batch],
    hyperparameters: Mapping[str, float],
) -> tuple[Model, list[float]]:
    """Return model and losses after one step per batch, of FedAvg if the hyperparameters have no mu, else of MOON."""
    local = network_with(network, model).train()
    terms: list[Term] = [cross_entropy]
    if "mu" in hyperparameters and previous_models:
        terms.append(moon_term(network, model, previous_models, hyperparameters["mu"], hyperparameters["tau"]))
    losses = descend(local, batches, hyperparameters, terms)
    return weights_of(local), losses


def cross_entropy(local: Network, inputs: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    log_probabilities = torch.log_softmax(local.outputs(z), dim=1)
    return -log_probabilities[torch.arange(len(labels)), labels].mean()


def moon_term(network: Network, model: Model, previous_models: Sequence[Model], mu: float, tau: float) -> Term:
    frozen = [network_with(network, other).eval() for other in (model, *previous_models)]

    def term(local: Network, inputs: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            references = [other.represent(inputs) for other in frozen]
        return mu * contrastive(z, references, tau)

    return term


def contrastive(z: torch.Tensor, references: Sequence[torch.Tensor], tau: float) -> torch.Tensor:
    """MOON's term as the paper prints it (section 3.3)."""
    exponentials = [torch.exp(cosine(z, other) / tau) for other in references]
    denominator = torch.stack(exponentials).sum(0)
    return -torch.log(exponentials[0] / denominator).mean()


def distance_term(network: Network, model: Model, mu: float) -> Term:
    """Return the mean distance to the global model's z; where it is 0, so is its gradient."""
    frozen = network_with(network, model).eval()

    def term(local: Network, inputs: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        squares = (z - frozen.represent(inputs).detach()).square().sum(dim=1)
        return mu * torch.stack([square.sqrt() if square > 0 else square * 0 for square in squares]).mean()

    return term


def proximal_term(network: Network, model: Model, mu: float) -> Term:
    """mu/2 · ‖w_i − w‖² by autograd."""
    anchors = [tensor.detach().clone() for tensor in parameters_of(network_with(network, model))]

    def term(local: Network, inputs: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        squares = [
            (parameter - anchor).square().sum() for parameter, anchor in zip(parameters_of(local), anchors, strict=True)
        ]
        return mu / 2 * torch.stack(squares).sum()

    return term


def prototype_term(prototypes: Mapping[int, torch.Tensor], mu: float, tau: float) -> Term:
    """FedSSC's l_glob; `prototypes` by class, of the classes that have one."""

    def term(local: Network, inputs: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = []
        for representation, label in zip(z, labels.tolist(), strict=True):
            exponentials = {
                class_: torch.exp(cosine(representation, prototype) / tau) for class_, prototype in prototypes.items()
            }
            if label in exponentials:
                losses.append(-torch.log(exponentials[label] / torch.stack(list(exponentials.values())).sum()))
            else:
                losses.append(torch.zeros(()))
        return mu * torch.stack(losses).mean()

    return term


def supervised_contrast_term(weight: float, tau: float) -> Term:
    """Khosla et al., equation 2 (L_out), averaged over the batch."""

    def term(local: Network, inputs: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = [torch.zeros(())]
        for anchor in range(len(z)):
            others = [other for other in range(len(z)) if other != anchor]
            positives = [other for other in others if labels[other] == labels[anchor]]
            if positives:
                exponentials = {other: torch.exp(cosine(z[anchor], z[other]) / tau) for other in others}
                denominator = torch.stack(list(exponentials.values())).sum()
                logarithms = [torch.log(exponentials[other] / denominator) for other in positives]
                losses.append(-torch.stack(logarithms).sum() / len(positives))
        return weight * torch.stack(losses).sum() / len(z)

    return term


def class_means(network: Network, model: Model, data: Sequence[Batch], minimum: int) -> dict[int, torch.Tensor]:
    """Return each class's mean z in eval mode, for classes with enough samples."""
    frozen = network_with(network, model).eval()
    z = torch.cat([frozen.represent(inputs).detach() for inputs, _ in data])
    labels = torch.cat([labels for _, labels in data])
    found = {}
    for class_ in sorted(set(labels.tolist())):
        members = z[labels == class_]
        if len(members) >= minimum:
            found[class_] = members.mean(dim=0)
    return found


def full_gradient(local: Network, data: Sequence[Batch], penalty: Term | None = None) -> torch.Tensor:
    """Return the gradient of all samples' mean cross-entropy and of a penalty as one vector, in the network's mode."""
    inputs, labels = torch.cat([inputs for inputs, _ in data]), torch.cat([labels for _, labels in data])
    z = local.represent(inputs)
    loss = cross_entropy(local, inputs, z, labels)
    if penalty:
        loss = loss + penalty(local, inputs, z, labels)
    gradients = torch.autograd.grad(loss, parameters_of(local))
    return torch.cat([gradient.flatten() for gradient in gradients])


def cosine(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    lengths: torch.Tensor = left.norm(dim=-1) * right.norm(dim=-1)
    return (left * right).sum(-1) / lengths
