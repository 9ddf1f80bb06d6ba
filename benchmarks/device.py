"""One device's local training: the compiled plan against an eager loop written as the MOON paper describes it.

The eager side runs the network three times in every step (the model in training, the global one, the previous one) and
torch.optim.SGD; it shares the network's modules with the plan, and nothing else.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.report import Figure
from export.methods import METHODS
from export.models import build_network
from export.network import Network, exchanged_tensors
from export.optimiser import Sgd
from export.plan import compile_plan, save_plan
from moonfed.manifest import InputSpec
from moonfed.plan import Plan, load_plan

SAMPLE = InputSpec(kind="image", shape=(32, 32, 3))
BATCH, CLASSES, EPOCHS = 64, 10, 10
MU, TAU = 5.0, 0.5
SGD = Sgd()
Step = Callable[[], object]


def measure_device() -> list[Figure]:
    figures = []
    for model, repetitions, steps in (("cnn", 21, 20), ("resnet18", 5, 1)):
        figures += _measure_model(model, repetitions, steps)
    return figures


def _measure_model(model: str, repetitions: int, steps: int) -> list[Figure]:
    network = build_network(model, SAMPLE, CLASSES)
    inputs = torch.randint(0, 256, (BATCH, *SAMPLE.shape), dtype=torch.uint8)
    labels = torch.randint(0, CLASSES, (BATCH,))
    fedavg, moon = _plan(network, "fedavg"), _plan(network, "moon")
    empty, draws = torch.empty(0), torch.empty(BATCH, 0)
    references = moon.references(inputs, draws)
    sides: dict[str, Step] = {
        "eager FedAvg": _eager_fedavg(network, inputs, labels),
        "plan FedAvg": lambda: fedavg.step(inputs, labels, empty, draws),
        "eager MOON": _eager_moon(network, inputs, labels),
        "plan MOON, references in each step": lambda: moon.step(inputs, labels, empty, draws),
        "plan MOON, references cached": lambda: moon.step(inputs, labels, references, draws),
        "references": lambda: moon.references(inputs, draws),
    }
    times = _alternate(sides, repetitions, steps)
    per_step = {name: statistics.median(values) for name, values in times.items()}
    # One pass of references serves the whole round of EPOCHS epochs.
    per_step["plan MOON, references cached"] += per_step.pop("references") / EPOCHS
    rows = [Figure(name=f"{model}: {name}", value=1e3 * value, unit="ms") for name, value in per_step.items()]
    cached, plain = per_step["plan MOON, references cached"], per_step["plan FedAvg"]
    eager = 1.75 if model == "cnn" else 1.5
    return [
        *rows,
        Figure(name=f"{model}: plan MOON / plan FedAvg", value=cached / plain, unit="times", at_most=1.10),
        Figure(name=f"{model}: eager MOON / plan MOON", value=per_step["eager MOON"] / cached, unit="times",
               at_least=eager),
        Figure(name=f"{model}: plan FedAvg / eager FedAvg", value=plain / per_step["eager FedAvg"], unit="times",
               at_most=1.03),
    ]  # fmt: skip


def _alternate(sides: dict[str, Step], repetitions: int, steps: int) -> dict[str, list[float]]:
    """Seconds per step; the sides take turns, so that the machine's moods hit all of them."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for repetition in range(repetitions + 2):  # two to warm up: TorchScript optimises on its second call
        for name, side in sides.items():
            started = time.perf_counter()
            for _ in range(steps):
                side()
            if repetition >= 2:
                times[name].append((time.perf_counter() - started) / steps)
    return times


def _plan(network: Network, method: str) -> Plan:
    settings = METHODS[method]()
    values = {"learning_rate": SGD.learning_rate, "momentum": SGD.momentum, "weight_decay": SGD.weight_decay}
    values |= settings.coefficients()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan.pt"
        save_plan(path, compile_plan(network, settings, values, model="benchmark"))
        plan = load_plan(path, "cpu")
    model = [tensor.detach().clone() for tensor in exchanged_tensors(network).values()]
    plan.begin_round(model, [model], {}, values)
    return plan


def _optimiser(network: torch.nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(
        network.parameters(), lr=SGD.learning_rate, momentum=SGD.momentum, weight_decay=SGD.weight_decay
    )


def _eager_fedavg(network: Network, inputs: torch.Tensor, labels: torch.Tensor) -> Step:
    local = copy.deepcopy(network).train()
    optimiser = _optimiser(local)

    def step() -> None:
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(local(inputs), labels))
        optimiser.step()

    return step


def _eager_moon(network: Network, inputs: torch.Tensor, labels: torch.Tensor) -> Step:
    local, frozen = copy.deepcopy(network).train(), [copy.deepcopy(network).eval() for _ in range(2)]
    optimiser, cosine = _optimiser(local), torch.nn.CosineSimilarity(dim=-1)

    def step() -> None:
        optimiser.zero_grad()
        z = local.represent(inputs)
        with torch.no_grad():
            z_global, z_previous = (encoder.represent(inputs) for encoder in frozen)
        similarities = torch.stack([cosine(z, z_global), cosine(z, z_previous)], dim=1) / TAU
        contrast = F.cross_entropy(similarities, torch.zeros_like(labels))
        torch.autograd.backward(F.cross_entropy(local.classify(z), labels) + MU * contrast)
        optimiser.step()

    return step
