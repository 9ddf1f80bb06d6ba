"""nn.LSTM in a plan: by an operator that checks what it is given, with the same state and results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.export.checked_layers import CheckedLstm, check_layers
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network
from tests.export.conftest import NewPlan, batches, hyperparameters
from tests.support.eager_reference import cross_entropy, descend, network_with, weights_of
from tests.support.plan_rounds import TOLERANCE, largest_difference, run_round

SERIES = InputSpec(kind="series", shape=(6, 3))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"batch_first": True}, id="batch-first"),
        pytest.param({"bias": False}, id="no-biases"),
        pytest.param({"num_layers": 2, "bidirectional": True, "dropout": 0.5}, id="deep"),
    ],
)
def test_results_and_gradients_are_torchs(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    plain = nn.LSTM(3, 4, **options)
    checked = CheckedLstm(plain)
    scripted = torch.jit.script(checked)
    assert list(checked.state_dict()) == list(plain.state_dict())
    inputs = torch.randn(5, 2, 3)
    hx = plain(inputs)[1]
    for given in ((inputs,), (inputs, tuple(state.detach() for state in hx))):
        found = []
        for layer in (plain, scripted):
            torch.manual_seed(1)  # of dropout
            states, (hidden, cells) = layer(*given)
            gradients = torch.autograd.grad(states.square().sum() + cells.sum(), list(plain.parameters()))
            found.append([states, hidden, cells, *gradients])
        torch.testing.assert_close(found[0], found[1])


def test_a_network_is_copied_and_only_what_fits_is_replaced() -> None:
    network = build_network("lstm", SERIES, class_target(2))
    network.encoder.add_module("other", nn.LSTM(3, 4, proj_size=2))
    checked = check_layers(network)
    kinds = {name: type(module) for name, module in checked.named_modules()}
    assert kinds["encoder.states.layer"] is CheckedLstm
    assert kinds["encoder.other"] is nn.LSTM
    assert type(network.get_submodule("encoder.states.layer")) is nn.LSTM
    assert list(checked.state_dict()) == list(network.state_dict())


def test_a_round_equals_an_eager_one(new_plan: NewPlan) -> None:
    network = build_network("lstm", SERIES, class_target(3), projection=None)
    steps = batches(SERIES, 6, 5, classes=3)
    found = run_round(new_plan(network, "fedavg"), weights_of(network), steps, hyperparameters())
    local: Network = network_with(network, weights_of(network)).train()
    losses = descend(local, steps, hyperparameters(), [cross_entropy])
    assert found.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(found.model, weights_of(local)) < TOLERANCE
    lower = run_round(new_plan(network, "fedavg", precision="bfloat16"), weights_of(network), steps, hyperparameters())
    assert lower.losses == pytest.approx(losses, rel=0.05)
