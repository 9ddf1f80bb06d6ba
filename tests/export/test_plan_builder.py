"""Compilation of plans: no weights and no path in them, the same bytes each time, and errors in one sentence."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import Method, Objective
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network
from moonfed.export.plan_builder import compile_plan, plan_bytes
from tests.export.conftest import IMAGE, hyperparameters
from tests.support.eager_reference import weights_of
from tests.support.plan_rounds import largest_difference
from tests.support.refusals import refused


def test_resnet50s_plan_contains_no_weights_and_no_path(tmp_path: Path) -> None:
    network = build_network("resnet50", IMAGE, class_target(100))
    assert 28.2e6 < sum(parameter.numel() for parameter in network.parameters()) < 28.4e6  # about 28.3 million
    content = plan_bytes(compile_plan(network, METHODS["moon"](), hyperparameters(mu=1.0, tau=0.5), model="resnet50"))
    assert len(content) < 1_000_000
    for path in (Path.cwd(), Path.home(), Path(torch.__file__).parent, Path(__file__).parent):
        assert str(path).encode() not in content
    assert b"site-packages" not in content
    assert b".debug_pkl" not in content


def test_compiling_is_deterministic_and_does_not_modify_the_network(resnet: Network) -> None:
    before = copy.deepcopy(weights_of(resnet))
    names = hyperparameters()
    first, second = (plan_bytes(compile_plan(resnet, METHODS["fedavg"](), names, model="tested")) for _ in range(2))
    assert first == second
    assert largest_difference(before, weights_of(resnet)) == 0


def test_a_network_that_torchscript_cannot_compile_is_rejected_with_one_sentence(cnn: Network) -> None:
    class Untyped(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return inputs[0]

    network = Network(cnn.preprocessing, Untyped(), torch.nn.Identity(), torch.nn.Linear(1, 1))
    with refused(InvalidInput, "model", "mine") as error:
        compile_plan(network, METHODS["fedavg"](), hyperparameters(), model="mine")
    assert "\n" not in str(error.value)


def test_an_objective_that_torchscript_cannot_compile_is_named_with_the_line(cnn: Network) -> None:
    class Unknown(Objective):
        def forward(
            self,
            loss: torch.Tensor,
            outputs: torch.Tensor,
            z_BD: torch.Tensor,
            targets: torch.Tensor,
            references_BRD: torch.Tensor,
            hyperparameters: dict[str, float],
        ) -> torch.Tensor:
            return loss * id(z_BD)

    problem = r"objective is '.*Unknown', which TorchScript cannot compile: .*test_plan_builder.py, line \d+\)"
    with pytest.raises(InvalidInput, match=problem):
        compile_plan(cnn, method_with(Unknown), hyperparameters(), model="mine")


def method_with(objective_class: type[Objective]) -> Method:
    class Tried(Method):
        def objective(self) -> Objective:
            return objective_class()

    return Tried()
