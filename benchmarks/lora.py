"""LoRA against training all of a pretrained network: bytes, memory and accuracy, on a small vision transformer.

    python -m benchmarks.lora

The network learns digits 0 to 4 in this process first. Three devices then learn 5 to 9 with it, of which each has an
uneven part, in rounds of federated averaging: all of the network, changes of rank 8 of its linear layers, or the output
layer alone. Every trial runs in a process of its own, and another one measures its peak memory: the resident set while
a device's round is trained, above that of the process before it loads the plan. Beside it stands what Adam keeps of
each trained parameter.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from moonfed.available_memory import peak_memory, resident_memory
from moonfed.blobs.tensors import file_size
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import MODEL, PLAN_FILE, WEIGHTS_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet
from moonfed.edge_client.training.local_training import Model, RoundSettings, Samples, evaluate, train_round
from moonfed.experiments.datasets import load_dataset
from moonfed.experiments.partition import PartitionSettings, split
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.preprocessing import build_preprocessing
from moonfed.export.weights.pretrained import PretrainedWeights
from moonfed.plan.interface import Plan, load_plan
from moonfed.plan.tensors import read_tensors

SAMPLE = InputSpec(kind="image", shape=(8, 8, 1))
SEEDS, ROUNDS, EPOCHS, BATCH, DEVICES, BETA = (0, 1, 2), 10, 2, 16, 3, 0.5
PEAK_SAMPLES = 256  # of the round whose memory is measured
PRETRAINING, PRETRAINING_BATCH = 60, 32  # epochs
WIDTH, DEPTH, HEADS, PATCH = 128, 4, 4, 8
KINDS: Mapping[str, Mapping[str, str]] = {
    "all": {},
    "LoRA, rank 8": {"lora": "rank=8,targets=linear"},
    "output layer": {"freeze": "encoder"},
}


class Transformer(nn.Module):
    """A vision transformer for 32x32 pixels, which digits are resized to."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(torch.randn(1, (32 // PATCH) ** 2, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the mean of the patches' features [B, WIDTH]."""
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        found: torch.Tensor = self.layers(tokens).mean(1)
        return found


def network(shape: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    """Return encoder, projection head and output layer."""
    return Transformer(shape[2]), nn.Identity(), nn.Linear(WIDTH, classes)


def of_classes(data: DataSet, first: int) -> DataSet:
    """Return the samples of five classes, as classes from 0."""
    chosen = (data.labels >= first) & (data.labels < first + 5)
    return DataSet(inputs=data.inputs[chosen], targets=data.labels[chosen] - first, target=class_target(5))


def pretrained(data: DataSet, seed: int) -> dict[str, torch.Tensor]:
    """Train on digits 0 to 4; return the encoder's tensors."""
    torch.manual_seed(seed)
    encoder, head = Transformer(1), nn.Linear(WIDTH, 5)
    preprocessing = build_preprocessing(SAMPLE, None, None)
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=5e-4)
    inputs, labels = torch.from_numpy(data.inputs), torch.from_numpy(data.labels)
    for _ in range(PRETRAINING):
        for rows in torch.split(torch.randperm(len(inputs)), PRETRAINING_BATCH):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(head(encoder(preprocessing(inputs[rows]))), labels[rows])
            torch.autograd.backward(loss)
            optimiser.step()
    return {f"encoder.{name}": tensor.detach() for name, tensor in encoder.state_dict().items()}


def built(kind: str, seed: int, start: Mapping[str, torch.Tensor]) -> Bundle:
    """Build the bundle that trains a kind's tensors."""
    recipe = BundleRecipe(
        name="lora",
        model="benchmarks.lora:network",
        input=SAMPLE,
        target=class_target(5),
        optimiser="adam",
        settings={"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": 0.0005 if kind == "all" else 0.003},
        seed=seed,
        weights=PretrainedWeights(tensors=start, source="digits 0 to 4", sha256="0" * 64, licence="BSD-3-Clause"),
        lora=KINDS[kind].get("lora", ""),
        freeze=KINDS[kind].get("freeze", ""),
    )
    return build_bundle(recipe)


def load(bundle: Bundle) -> tuple[Plan, Model]:
    """Load a bundle's plan and initial weights from files, as a device does."""
    manifest = bundle.manifest
    with TemporaryDirectory(prefix="moonfed-") as root:
        for name, content in bundle.contents.items():
            Path(root, name).write_bytes(content)
        frozen = read_tensors(Path(root, "frozen.safetensors"), manifest.frozen) if manifest.frozen else None
        plan = load_plan(Path(root, PLAN_FILE), "cpu", frozen=frozen)
        return plan, read_tensors(Path(root, WEIGHTS_FILE), manifest.tensors)


def train(plan: Plan, part: Samples, model: Model, settings: RoundSettings) -> Model:
    """Train a device's round; return its model."""
    found = train_round(plan, part, model=model, previous_models=[], received={}, settings=settings)
    return list(found.results[MODEL])


def trial(kind: str, seed: int, sender: Connection) -> None:
    """Send the accuracy, the bytes of a round each way, the number of trained parameters, and the peak memory."""
    torch.set_num_threads(1)
    digits = load_dataset("digits", None)
    bundle = built(kind, seed, pretrained(of_classes(digits.train, 0), seed))
    manifest, data, test = bundle.manifest, of_classes(digits.train, 5), of_classes(digits.test, 5)
    plan, model = load(bundle)
    parts = [samples(data, rows) for rows in split(data, PartitionSettings(devices=DEVICES, beta=BETA, seed=seed))]
    sizes, spec = [len(part) for part in parts], manifest.training_at(1)
    for round_ in range(1, ROUNDS + 1):
        places = [RoundSettings(training=spec, seed=seed, round=round_, device=f"device-{n}") for n in range(DEVICES)]
        results = [train(plan, part, model, place) for part, place in zip(parts, places, strict=True)]
        model = [
            torch.stack([tensor * size for tensor, size in zip(tensors, sizes, strict=True)]).sum(0) / sum(sizes)
            for tensors in zip(*results, strict=True)
        ]
    plan.begin_round(model, [], {}, spec.hyperparameters)
    score = evaluate(plan, samples(test, np.arange(len(test))), 256).score
    trained = sum(parameter.size for parameter in manifest.parameters)
    peak = in_process(peak_memory_of, bundle, seed)
    sender.send({"accuracy": score, "bytes": file_size(manifest.tensors), "trained": trained, "peak": peak})


def peak_memory_of(bundle: Bundle, seed: int, sender: Connection) -> None:
    """Send the peak memory of a round with PEAK_SAMPLES samples, in bytes above this process's at first."""
    torch.set_num_threads(1)
    digits = load_dataset("digits", None).train
    part = samples(digits, np.arange(PEAK_SAMPLES))
    part = Samples(inputs=part.inputs, targets=part.targets % 5)
    settings = RoundSettings(training=bundle.manifest.training_at(1), seed=seed, round=1, device="device-0")
    before = resident_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    plan, model = load(bundle)
    train(plan, part, model, settings)
    sender.send(peak_memory() - before)


def in_process(target: Callable[..., None], *arguments: object) -> Any:
    """Return what a function sends that runs in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*arguments, sender))
    process.start()
    sender.close()  # so that a process that fails ends the wait
    found = receiver.recv()
    process.join()
    return found


def samples(data: DataSet, rows: npt.NDArray[Any]) -> Samples:
    """Return those rows."""
    return Samples(inputs=torch.from_numpy(data.inputs[rows]), targets=torch.from_numpy(data.labels[rows]))


def main() -> None:
    """Run the trials, each in its own process, and print the table."""
    for kind in KINDS:
        found = []
        for seed in SEEDS:
            print(f"{kind}, seed {seed}", file=sys.stderr)
            found.append(in_process(trial, kind, seed))
            print(json.dumps(found[-1]), file=sys.stderr)
        accuracies = [100 * one["accuracy"] for one in found]
        peak = statistics.median(one["peak"] for one in found)
        computed = 12 * found[0]["trained"]  # a gradient and two moments, float32
        print(f"{kind:<13} accuracy {statistics.fmean(accuracies):.1f} ± {statistics.stdev(accuracies):.1f} %, "
              f"{found[0]['bytes']:,} bytes each way, {computed:,} bytes of gradients and moments, "
              f"peak {peak / 1e6:.1f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
