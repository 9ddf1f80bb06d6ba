"""Loss scaling in float16: steps that overflow have no effect, and small gradients survive."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from moonfed.bundle.target import class_target
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.plan.interface import TorchScriptPlan, allocate
from tests.export.conftest import FEATURES, IMAGE, NewPlan, batches
from tests.support.eager_reference import weights_of
from tests.support.plan_precision import opened, update_of, values
from tests.support.plan_rounds import NONE, largest_difference, no_draws, run_round

pytestmark = pytest.mark.slow

BOUNDS = {"bfloat16": 0.15, "float16": 0.05}
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
DEVICES = ["cpu", pytest.param("cuda", marks=CUDA)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_steps_that_overflow_in_float16_have_no_effect(method: str, device: str, cnn: Network, tmp_path: Path) -> None:
    """Every step gets the same batch, so a round whose first steps overflow must end like one without these steps."""
    plan, control = (plan_in_float16(cnn, method, tmp_path, device, scale) for scale in (2.0**36, 2.0**10))
    variates = [0.01 * torch.ones_like(tensor) for tensor in weights_of(cnn)]
    received = {"variate": variates} if method == "scaffold" else {}
    inputs, labels = batches(IMAGE, 1, 8)[0]

    def begin(begun: TorchScriptPlan) -> None:
        begun.begin_round(weights_of(cnn), [], received, values(method))

    def step(stepped: TorchScriptPlan) -> float:
        return float(stepped.step(inputs, labels, NONE, no_draws(inputs)))

    begin(plan)
    skipped = 0
    first = step(plan)
    while largest_difference(plan.end_round(skipped + 1)["model"], weights_of(cnn)) == 0:
        skipped += 1
        assert skipped < 36, "each of these steps halves the scale"
        assert step(plan) == first, "a loss is what it is, whatever its gradients were scaled by"
    assert skipped > 5
    losses = [step(plan) for _ in range(4)]
    begin(control)
    assert [step(control) for _ in range(5)][1:] == pytest.approx(losses, rel=1e-3)
    found, expected = plan.end_round(skipped + 5), control.end_round(5)
    moved = largest_difference(expected["model"], weights_of(cnn))
    assert largest_difference(found["model"], expected["model"]) < 0.01 * moved
    for role in expected:
        size = max(float(tensor.abs().max()) for tensor in expected[role])
        assert largest_difference(found[role], expected[role]) < 0.01 * size, role


def plan_in_float16(network: Network, method: str, directory: Path, device: str, scale: float) -> TorchScriptPlan:
    save_plan(directory / "plan.pt", compile_plan(network, METHODS[method](), values(method), model="tested"))
    module = opened(directory, device)
    allocate(module)
    module.scale_losses(scale)
    return TorchScriptPlan(module, torch.device(device), "float16")


def narrow(shape: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    """An MLP with few hidden units: float16 is slow on a CPU."""
    return nn.Sequential(nn.Linear(shape[0], 32), nn.ReLU()), nn.Linear(32, 16), nn.Linear(16, classes)


def test_float16_scales_losses_and_resets_every_round(tmp_path: Path) -> None:
    """After a round that lowered the scale, the next one starts with steps that overflow again."""
    network = build_network("tests.export.test_loss_scale:narrow", FEATURES, class_target(10))
    plan, (inputs, labels) = plan_in_float16(network, "fedavg", tmp_path, "cpu", 2.0**36), batches(FEATURES, 1, 8)[0]
    for _ in range(2):
        plan.begin_round(weights_of(network), [], {}, values("fedavg"))
        plan.step(inputs, labels, NONE, no_draws(inputs))
        assert largest_difference(plan.end_round(1)["model"], weights_of(network)) == 0
        for _ in range(40):
            plan.step(inputs, labels, NONE, no_draws(inputs))
        assert largest_difference(plan.end_round(41)["model"], weights_of(network)) > 0


def test_scaling_preserves_gradients_too_small_for_float16(new_plan: NewPlan, tmp_path: Path) -> None:
    """With 4,096 classes a probability is about 2^-12; in a batch of 4,096 its gradient is about 2^-24."""
    network = build_network("tests.export.test_loss_scale:narrow", FEATURES, class_target(4096))
    steps = batches(FEATURES, 1, 4096, classes=4096)

    def update(plan: TorchScriptPlan) -> torch.Tensor:
        return update_of(run_round(plan, weights_of(network), steps, values("fedavg")), network)

    expected = update(new_plan(network, "fedavg"))
    scaled = update(new_plan(network, "fedavg", precision="float16"))
    module = opened(tmp_path, "cpu")
    allocate(module)
    unscaled = update(TorchScriptPlan(module, torch.device("cpu"), "float16"))
    assert (scaled - expected).norm() / expected.norm() < BOUNDS["float16"]
    assert (scaled - expected).norm() < 0.5 * (unscaled - expected).norm()
