"""A plan in mixed precision and in either memory format, against the plain one, on the CPU and where there is one on
CUDA. How far mixed precision may stray is stated as the relative error of a round's update of the trained parameters:
two updates' difference over the plain one, in the Euclidean norm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from moonfed.errors import InvalidInput
from moonfed.export.methods import METHODS
from moonfed.export.network import Network
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.plan.interface import MEMORY_FORMATS, PRECISIONS, TorchScriptPlan, load_plan
from tests.export.conftest import IMAGE, SMALL_IMAGE, NewPlan, batches
from tests.support.eager_reference import Batch, Model, weights_of
from tests.support.plan_precision import opened, update_of, values
from tests.support.plan_rounds import (
    TOLERANCE,
    Round,
    largest_difference,
    no_draws,
    other_models,
    run_round,
    smooth_network,
)
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

NETWORKS = {"cnn": IMAGE, "resnet": SMALL_IMAGE}
BOUNDS = {"bfloat16": 0.15, "float16": 0.05}
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
DEVICES = ["cpu", pytest.param("cuda", marks=CUDA)]


def steps_of(kind: str, count: int = 20) -> list[Batch]:
    return batches(NETWORKS[kind], count, 8)


def round_of(plan: TorchScriptPlan, network: Network, kind: str, method: str) -> Round:
    return run_round(plan, weights_of(network), steps_of(kind), values(method), previous=other_models(network, 1))


def relative_error(found: Round, expected: Round, network: Network) -> float:
    right = update_of(expected, network)
    return float((update_of(found, network) - right).norm() / right.norm())


@pytest.fixture(scope="module")
def plain_rounds() -> dict[tuple[str, str], Round]:
    """The rounds in float32, by network and method: the first test of each adds it."""
    return {}


@pytest.fixture
def without_tf32() -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["fedavg", "moon", "scaffold", "fedprox"])
@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.usefixtures("without_tf32")
def test_twenty_steps_are_the_same_in_both_memory_formats(
    kind: str, method: str, device: str, request: pytest.FixtureRequest, new_plan: NewPlan
) -> None:
    network: Network = request.getfixturevalue(kind)
    plain = round_of(new_plan(network, method, memory_format="contiguous"), network, kind, method)
    for memory_format in MEMORY_FORMATS:
        plan = new_plan(network, method, device=device, memory_format=memory_format)
        found = round_of(plan, network, kind, method)
        assert found.losses == pytest.approx(plain.losses, abs=TOLERANCE)
        assert set(found.results) == set(plain.results)
        for role, tensors in found.results.items():
            scale = 1 / (20 * 0.0003) if "variate" in role else 1.0  # a drift over steps and learning rate
            assert largest_difference(list(tensors), list(plain.results[role])) < TOLERANCE * scale
            assert all(tensor.is_contiguous() and tensor.device.type == "cpu" for tensor in tensors)


@pytest.mark.parametrize("memory_format", MEMORY_FORMATS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_round_is_reproducible_bit_for_bit(
    precision: str, memory_format: str, resnet: Network, new_plan: NewPlan
) -> None:
    plans = [new_plan(resnet, "moon", precision=precision, memory_format=memory_format) for _ in range(2)]
    start, steps, previous = weights_of(resnet), steps_of("resnet", 5), other_models(resnet, 1)
    rounds = [run_round(plan, start, steps, values("moon"), previous=previous) for plan in (*plans, plans[0])]
    for again in rounds[1:]:
        assert again.losses == rounds[0].losses
        assert largest_difference(again.model, rounds[0].model) == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("method", ["fedavg", "moon", "fedprox", "fedssc-local-contrast"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_mixed_precision_stays_within_its_bound(
    kind: str,
    method: str,
    precision: str,
    device: str,
    request: pytest.FixtureRequest,
    new_plan: NewPlan,
    plain_rounds: dict[tuple[str, str], Round],
) -> None:
    network: Network = request.getfixturevalue(kind)
    if (kind, method) not in plain_rounds:
        plain_rounds[kind, method] = round_of(new_plan(network, method), network, kind, method)
    plain = plain_rounds[kind, method]
    found = round_of(new_plan(network, method, device=device, precision=precision), network, kind, method)
    error = relative_error(found, plain, network)
    assert 0 < error < BOUNDS[precision], "0 would be float32"
    assert found.losses == pytest.approx(plain.losses, rel=0.02)
    assert all(tensor.dtype == torch.float32 for tensors in found.results.values() for tensor in tensors)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", BOUNDS)
def test_references_are_float32_and_evaluation_is_not_mixed_precision(
    precision: str, device: str, resnet: Network, new_plan: NewPlan
) -> None:
    inputs, labels = steps_of("resnet", 1)[0]
    plans = [new_plan(resnet, "moon"), new_plan(resnet, "moon", device=device, precision=precision)]
    for plan in plans:
        plan.begin_round(weights_of(resnet), other_models(resnet, 1), {}, values("moon"))
    plain, lower = (plan.references(inputs, no_draws(inputs)).cpu() for plan in plans)
    assert lower.dtype == torch.float32
    assert 0 < (plain - lower).abs().max() * 0.5 < 0.02  # of directions, tau being 0.5
    tolerance = 0 if device == "cpu" else 1e-3
    for plain, lower in (
        [plan.evaluate(inputs, labels).cpu() for plan in plans],
        [plan.predict(inputs).cpu() for plan in plans],
    ):
        assert (plain - lower).abs().max() <= tolerance


@pytest.mark.parametrize("device", DEVICES)
def test_precision_and_memory_format_are_checked(device: str, cnn: Network, new_plan: NewPlan, tmp_path: Path) -> None:
    new_plan(cnn, "fedavg")
    with refused(InvalidInput, "precision", "int8"):
        load_plan(tmp_path / "plan.pt", device, precision="int8")
    with refused(InvalidInput, "memory_format", "rows"):
        load_plan(tmp_path / "plan.pt", device, memory_format="rows")


@CUDA
@pytest.mark.parametrize("method", ["fedavg", "moon", "l2", "scaffold", "fedssc-local-contrast"])
@pytest.mark.usefixtures("without_tf32")
def test_twenty_steps_on_cuda_equal_those_on_the_cpu(method: str, new_plan: NewPlan) -> None:
    network = smooth_network()
    steps, model, previous = batches(SMALL_IMAGE, 20, 8), weights_of(network), other_models(network, 1)

    def round_on(device: str) -> Round:
        return run_round(new_plan(network, method, device=device), model, steps, values(method), previous=previous)

    here, there = round_on("cpu"), round_on("cuda")
    assert there.losses == pytest.approx(here.losses, abs=TOLERANCE)
    assert largest_difference(there.model, here.model) < TOLERANCE


def test_loading_moves_every_tensor_of_a_plan_to_the_device(cnn: Network, tmp_path: Path) -> None:
    """Constants too, such as the preprocessing's: a mixture would stop a step, or copy in each. `meta` is a device
    that every torch has."""
    method = METHODS["moon"]()
    save_plan(tmp_path / "plan.pt", compile_plan(cnn, method, values("moon"), model="tested"))
    module = opened(tmp_path, "meta")
    constants = [module.network.preprocessing.factor, module.network.preprocessing.shift]
    tensors: Model = [*module.parameters(), *module.buffers(), *module.state, *module.trained, *constants]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
