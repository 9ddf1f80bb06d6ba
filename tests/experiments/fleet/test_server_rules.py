"""A server rule on a network with BatchNorm: the coordinator's arithmetic against the same in torch, by names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from moonfed.blobs.tensors import open_model, split, write_model
from moonfed.bundle.manifest import MODEL, PLAN_FILE, WEIGHTS_FILE, InputSpec, Manifest
from moonfed.bundle.target import class_target
from moonfed.coordinator.aggregation.aggregate import aggregate
from moonfed.coordinator.aggregation.closed_round import ClosedRound, Contribution
from moonfed.coordinator.draw import Draw
from moonfed.edge_client.training.local_training import RoundSettings, Samples, Trained, train_round
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.model_zoo import build_network
from moonfed.plan.interface import Plan, load_plan
from moonfed.server_rules.fedavgm import FedAvgM
from tests.support.compiled import build_device_bundle

pytestmark = pytest.mark.slow

IMAGE = InputSpec(kind="image", shape=(16, 16, 1))
NETWORK = "tests.support.residual_network:small_resnet"
SAMPLES = {"a": 24, "b": 8}
State = dict[str, torch.Tensor]


def trained(plan: Plan, manifest: Manifest, path: Path, device: str, round_: int) -> Trained:
    """Train with brighter images on one device, so that the devices' statistics differ."""
    generator = torch.Generator().manual_seed(round_ + 10 * ord(device))
    pixels = torch.randint(0, 100 if device == "a" else 256, (SAMPLES[device], 16, 16, 1), generator=generator)
    labels = torch.randint(0, 10, (SAMPLES[device],), generator=generator)
    settings = RoundSettings(
        training=replace(manifest.training, epochs=2, batch_size=8), seed=0, round=round_, device=device
    )
    return train_round(
        plan,
        Samples(inputs=pixels.to(torch.uint8), targets=labels),
        model=list(state(path, manifest).values()),
        previous_models=[],
        received={},
        settings=settings,
    )


def state(path: Path, manifest: Manifest) -> State:
    vector = np.array(open_model(path, manifest.tensors))
    return {name: torch.from_numpy(values) for name, values in split(vector, manifest.tensors).items()}


@pytest.mark.parametrize("damped", [False, True])
def test_fedavgm_on_a_network_with_batch_norm(tmp_path: Path, damped: bool) -> None:
    rule = FedAvgM(server_momentum=0.9, damped=damped)
    bundle = build_device_bundle(
        BundleRecipe(
            name="tested", model=NETWORK, input=IMAGE, target=class_target(tuple("0123456789")), server_rule=rule
        )
    )
    manifest = bundle.manifest
    for name in (PLAN_FILE, WEIGHTS_FILE):
        (tmp_path / name).write_bytes(bundle.contents[name])
    plan = load_plan(tmp_path / PLAN_FILE, "cpu")
    parameters = {name for name, _ in build_network(NETWORK, IMAGE, class_target(10)).named_parameters()}

    initial_model: dict[str, Path] = {MODEL: tmp_path / WEIGHTS_FILE}
    velocity: State = {}
    for round_ in (1, 2, 3):
        before = state(initial_model[MODEL], manifest)
        contributions, models = [], []
        for device, samples in SAMPLES.items():
            result = trained(plan, manifest, initial_model[MODEL], device, round_)
            file = tmp_path / f"{round_}-{device}"
            write_model(file, manifest.tensors, (tensor.numpy().ravel() for tensor in result.results[MODEL]))
            contributions.append(Contribution(device=device, files={MODEL: file}, samples=samples, steps=result.steps))
            models.append(state(file, manifest))
        directory = tmp_path / f"reduced-{round_}"
        directory.mkdir()
        aggregated = aggregate(
            ClosedRound(
                manifest=manifest, round=round_, draw=Draw(bytes(32)), enrolled=2, global_state=initial_model,
                contributions=tuple(contributions), cohort=2,
            ),
            directory,
        )  # fmt: skip
        initial_model = dict(aggregated.files)

        after = state(initial_model[MODEL], manifest)
        for name, found in after.items():
            mean = 0.75 * models[0][name].double() + 0.25 * models[1][name].double()
            if name in parameters:
                change = mean - before[name].double()
                past = velocity.get(name, torch.zeros_like(change))
                velocity[name] = 0.9 * past + (0.1 if damped else 1.0) * change
                mean = before[name].double() + velocity[name]
            torch.testing.assert_close(found.double(), mean, atol=1e-6, rtol=1e-5)
        variances = [values for name, values in after.items() if name.endswith("running_var")]
        assert len(variances) == 5
        assert all(bool((values > 0).all()) for values in variances)
