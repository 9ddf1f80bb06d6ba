"""Properties of every method, and the smallest of them, SOLO."""

from __future__ import annotations

import copy
import io
import zipfile
from pathlib import Path

import pytest
import torch

from moonfed.bundle.manifest import DEVICE_STATE, DOWNLINK, UPLINK
from moonfed.errors import InvalidInput
from moonfed.export.bundle_recipe import read_settings
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import ExchangeShapes, Method
from moonfed.export.network import Network, exchanged_tensors, tensor_specs
from moonfed.export.plan_builder import compile_plan, plan_bytes
from moonfed.plan.interface import load_torchscript_plan
from moonfed.registry import find_problem
from tests.export.conftest import IMAGE, SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import cross_entropy, descend, network_with, weights_of
from tests.support.plan_rounds import (
    TOLERANCE,
    WIDTH,
    largest_difference,
    other_models,
    run_round,
    smooth_network,
)
from tests.support.refusals import refused

SMOOTH = smooth_network()


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_entry_is_complete(name: str) -> None:
    assert find_problem(name, METHODS[name], Method) == ""
    assert read_settings(name, {}).method == METHODS[name]()


def received_roles(method: Method, network: Network) -> dict[str, list[torch.Tensor]]:
    """Return a value for every role that a device has in the middle of a run."""
    shapes = ExchangeShapes(tensors=tensor_specs(network), classes=10, width=WIDTH)
    received = {}
    for seed, (role, tensors) in enumerate({**method.downlink(shapes), **method.device_state(shapes)}.items(), start=2):
        chance = torch.Generator().manual_seed(seed)
        received[role] = [0.01 + torch.rand(spec.shape, generator=chance) / 10 for spec in tensors]
    return received


def first_state(method: Method, network: Network) -> dict[str, list[torch.Tensor]]:
    """Return what a device has of its own before its first round: a personal model, if the method has one."""
    return {"personal": weights_of(network)} if method.trains_personal_model else {}


def test_no_two_methods_train_the_same_model(new_plan: NewPlan) -> None:
    """An objective whose own part is never reached would train FedAvg's.

    SOLO is FedAvg without a fleet, and Ditto FedAvg with a personal model.
    """
    found = {}
    for name, entry in METHODS.items():
        method = entry()
        models = other_models(SMOOTH, 1 + method.previous_models)
        values = hyperparameters(**method.hyperparameters())
        found[name] = run_round(
            new_plan(SMOOTH, name),
            models[0],
            batches(SMALL_IMAGE, 3, 20, seed=1),
            values,
            previous=models[1:],
            received=received_roles(method, SMOOTH),
        ).model
    for name in ("solo", "ditto"):
        assert largest_difference(found.pop(name), found["fedavg"]) == 0
    names = list(found)
    for number, name in enumerate(names):
        for other in names[number + 1 :]:
            assert largest_difference(found[name], found[other]) > 0, (name, other)


@pytest.mark.parametrize("name", METHODS)
def test_a_plan_holds_no_weights(name: str, cnn: Network) -> None:
    method = METHODS[name]()
    content = plan_bytes(compile_plan(cnn, method, hyperparameters(**method.hyperparameters()), model="tested"))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        tensors = sum(record.file_size for record in archive.infolist() if "/data/" in record.filename)
    weights = sum(4 * tensor.numel() for tensor in exchanged_tensors(cnn).values())
    assert tensors < 1000 < weights / 100


@pytest.mark.parametrize("name", METHODS)
def test_results_are_those_that_the_method_announces(name: str, cnn: Network, new_plan: NewPlan) -> None:
    method = METHODS[name]()
    shapes = ExchangeShapes(tensors=(), classes=10, width=256)
    downlink, uplink, state = method.downlink(shapes), method.uplink(shapes), method.device_state(shapes)
    for roles, known in ((downlink, DOWNLINK), (uplink, UPLINK), (state, DEVICE_STATE)):
        assert set(roles) <= set(known)
    values = hyperparameters(**method.hyperparameters())
    own = first_state(method, cnn)
    found = run_round(new_plan(cnn, name), weights_of(cnn), batches(IMAGE, 2, 16), values, received=own)
    assert set(found.results) == {"model", *uplink, *state}
    assert set(method.schedules()) <= set(method.hyperparameters())


@pytest.mark.parametrize("name", METHODS)
def test_a_plan_remembers_nothing_of_the_device_that_it_trained_before(
    name: str, new_plan: NewPlan, tmp_path: Path
) -> None:
    """A worker of the virtual fleet trains one party after the other with one plan; here one that is in mid-run, then
    one in its first round, to whom nothing is sent but the model."""
    network, method = copy.deepcopy(SMOOTH), METHODS[name]()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # its statistics then depend on how many batches it has seen
    received = received_roles(method, network)
    values = hyperparameters(**method.hyperparameters())
    values |= {"measure_inexactness": 1.0} if "measure_inexactness" in values else {}
    used = new_plan(network, name)
    fresh = load_torchscript_plan(tmp_path / "plan.pt", "cpu")
    models = other_models(network, 1 + method.previous_models)
    run_round(used, models[0], batches(SMALL_IMAGE, 3, 20, seed=1), values, previous=models[1:], received=received)
    own = first_state(method, network)
    found, expected = (
        run_round(plan, weights_of(network), batches(SMALL_IMAGE, 2, 20), values, received=own)
        for plan in (used, fresh)
    )
    assert found.losses == expected.losses
    assert found.metrics == expected.metrics
    assert set(found.results) == set(expected.results)
    for role, tensors in expected.results.items():
        assert largest_difference(list(found.results[role]), list(tensors)) == 0, role


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fedavg", (0, 0, True, 10, 0)),
        ("fedprox", (0, 0, True, 10, 0)),
        ("scaffold", (0, 0, True, 10, 0)),
        ("moon", (1, 2, True, 10, 0)),
        ("l2", (0, 1, True, 10, 0)),
        ("fedssc", (1, 2, True, 10, 1)),
        ("fedproc", (0, 0, True, 10, 0)),
        ("fedssc-two-stage", (1, 2, True, 10, 1)),
        ("fedssc-local-contrast", (1, 2, True, 10, 1)),
        ("solo", (0, 0, False, 300, 0)),
    ],
)
def test_the_papers_methods_as_the_rest_of_moonfed_reads_them(name: str, expected: tuple[object, ...]) -> None:
    m = METHODS[name]()
    assert (m.previous_models, m.frozen_encoders, m.exchanges, m.default_epochs, m.prototype_devices) == expected


def test_methods_whose_loss_depends_on_representations_say_so() -> None:
    comparing = {name for name, method in METHODS.items() if method.compares_representations}
    assert comparing == {"moon", "l2", "fedproc", "fedssc", "fedssc-two-stage", "fedssc-local-contrast"}


def test_solo_is_fedavg_on_the_device(new_plan: NewPlan) -> None:
    steps = batches(SMALL_IMAGE, 20, 8)
    solo = run_round(
        new_plan(SMOOTH, "solo"), weights_of(SMOOTH), steps, hyperparameters(), previous=other_models(SMOOTH, 1)
    )
    local = network_with(SMOOTH, weights_of(SMOOTH)).train()
    losses = descend(local, steps, hyperparameters(), [cross_entropy])
    assert solo.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(solo.model, weights_of(local)) < TOLERANCE


@pytest.mark.parametrize(
    ("method", "wrong", "named"),
    [
        ("l2", {"mu": -1.0}, ("mu", -1.0)),
        ("fedssc-two-stage", {"first_stage_rounds": 0}, ("first_stage_rounds", 0)),
        ("fedssc-two-stage", {"tau": -1.0}, ("tau", -1.0)),
        ("fedssc-local-contrast", {"local_contrast": -1.0}, ("local_contrast", -1.0)),
    ],
)
def test_settings_that_are_not_allowed(method: str, wrong: dict[str, float], named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        METHODS[method](**wrong)
