"""Two rounds of one device by one form of a bundle's plan, in any environment that has moonfed.

    python graph_round.py BUNDLE PLAN SAMPLES OUTPUT

BUNDLE: a directory. PLAN: the file's name in it. SAMPLES: an `.npz` file. OUTPUT: the trained model, as safetensors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from moonfed.blobs.tensors import write_model
from moonfed.bundle.manifest import MANIFEST_FILE, MODEL, WEIGHTS_FILE, Manifest
from moonfed.edge_client.training.local_training import RoundSettings, Samples, train_round
from moonfed.plan.interface import load_plan
from moonfed.plan.tensors import read_tensors


def main() -> None:
    """Train, and write the model."""
    bundle, plan_file, samples, output = sys.argv[1:]
    torch.set_num_threads(1)
    manifest = Manifest.from_bytes((Path(bundle) / MANIFEST_FILE).read_bytes())
    with np.load(samples) as arrays:
        data = Samples(inputs=torch.from_numpy(arrays["inputs"]), targets=torch.from_numpy(arrays["labels"]).long())
    plan = load_plan(Path(bundle) / plan_file, "cpu")
    model: Sequence[torch.Tensor] = read_tensors(Path(bundle) / WEIGHTS_FILE, manifest.tensors)
    previous: Sequence[Sequence[torch.Tensor]] = ()
    for number in (1, 2):
        settings = RoundSettings(training=manifest.training_at(number), seed=7, round=number, device="cam-1")
        trained = train_round(plan, data, model=model, previous_models=previous, received={}, settings=settings)
        model = trained.results[MODEL]
        previous = [model, *previous][: manifest.previous_models]
    write_model(Path(output), manifest.tensors, (tensor.numpy().reshape(-1) for tensor in model))


if __name__ == "__main__":
    main()
