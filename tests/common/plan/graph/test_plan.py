"""Plans that are graphs: their rounds are those of eager torch, bit by bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy, gelu, linear, mse_loss

from moonfed.errors import TrainingFailed
from moonfed.plan.graph.plan import GraphPlan
from moonfed.plan.interface import Plan, load_plan
from tests.support import graph_containers
from tests.support.graph_containers import (
    BEGIN,
    CLASSES,
    FEATURES,
    LATER_BEGIN,
    METRICS,
    PREDICT,
    SURVEY,
    Json,
    graph,
    node,
    v,
    written,
)
from tests.support.refusals import refused

HYPERPARAMETERS = {"learning_rate": 0.1, "mu": 0.3, "unknown": 1.0}
EMPTY = torch.empty(0)
ROOT = Path(__file__).parents[4]
Model = list[torch.Tensor]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return load_plan(written(tmp_path, graph_containers.linear()), "cpu")


@pytest.fixture
def models() -> list[Model]:
    """Two models."""
    generator = torch.Generator().manual_seed(0)
    return [[torch.randn(shape, generator=generator) for shape in ((CLASSES, FEATURES), (CLASSES,))] for _ in range(2)]


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, FEATURES, generator=generator), torch.randint(CLASSES, (8,), generator=generator)


def eager(model: Model, steps: int, loss_of: Callable[[torch.Tensor], torch.Tensor], push: float = 0.0) -> list[float]:
    """Train a model in place; `push`: added to the bias's gradient. Return the losses."""
    losses = []
    optimiser = torch.optim.SGD([each.requires_grad_() for each in model], lr=0.1, momentum=0.9, fused=True)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = loss_of(linear(loss_inputs(), *model))
        loss.backward()  # type: ignore[no-untyped-call]
        model[1].grad.add_(push)  # type: ignore[union-attr]
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def loss_inputs() -> torch.Tensor:
    return torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(1)) * 0.5


def test_a_first_round_equals_eager_training(
    plan: Plan, models: list[Model], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    inputs, targets = batch
    plan.begin_round(models[0], [], {}, HYPERPARAMETERS, 5)
    assert isinstance(plan, GraphPlan)
    assert (plan.draws_per_sample(), plan.reference_count(), plan.wants_survey(False)) == (0, 0, True)
    assert plan.references(inputs, EMPTY).shape == (8, 0)
    losses = [float(plan.step(inputs, targets, EMPTY, EMPTY)) for _ in range(5)]
    results = plan.end_round(5)["model"]
    assert losses == eager(models[0], 5, lambda outputs: cross_entropy(outputs, targets))
    assert all(map(torch.equal, results, models[0]))
    assert all(not result.requires_grad for result in results)
    evaluated = plan.evaluate(inputs, targets)
    assert torch.equal(evaluated[0], cross_entropy(linear(loss_inputs(), *models[0]), targets, reduction="sum"))
    assert plan.metric(evaluated, 8) == float(evaluated[0]) / 8
    wanted = gelu(linear(loss_inputs(), *models[0]), approximate="tanh").softmax(-1)
    assert torch.equal(plan.predict(inputs), wanted)
    before = [result.clone() for result in results]
    plan.step(inputs, targets, EMPTY, EMPTY)
    assert all(map(torch.equal, results, before)), "the results are copies"
    assert torch.is_grad_enabled(), "the graphs restore the mode"


@pytest.mark.parametrize("kept", [False, True])
def test_a_later_round_uses_previous_models_references_and_roles(
    plan: Plan, models: list[Model], batch: tuple[torch.Tensor, torch.Tensor], kept: bool
) -> None:
    inputs, targets = batch
    model, previous = models
    received = {"variate": [torch.full([CLASSES], 0.25)], "unknown": []}
    plan.begin_round(model, [previous, previous], received, HYPERPARAMETERS, 4)
    assert plan.reference_count() == 1
    wanted = linear(loss_inputs(), *previous)
    references = plan.references(inputs, EMPTY)
    assert torch.equal(references, wanted)
    given = references if kept else EMPTY
    losses = [float(plan.step(inputs, targets, given, EMPTY)) for _ in range(4)]
    expected = eager(
        model, 4, lambda outputs: cross_entropy(outputs, targets) + mse_loss(outputs, wanted) * 0.3, push=0.5
    )
    assert losses == expected
    plan.survey(inputs, targets, 0)
    plan.survey(inputs, targets, 4)
    results = plan.end_round(4)
    assert all(map(torch.equal, results["model"], model))
    assert torch.equal(results["class_means"][0], (inputs.sum(0) + inputs.sum(0)) / 4)
    assert plan.metrics() == {"seen": float((inputs.sum(0) + inputs.sum(0)).sum()), "rate": 0.2}


def test_rounds_without_graphs_and_wrong_tensors_are_refused_before_anything_runs(
    plan: Plan, models: list[Model], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    model, previous = models
    with pytest.raises(TrainingFailed, match="begun no round"):
        plan.evaluate(*batch)
    variate = {"variate": [torch.zeros(CLASSES)]}
    wrong: list[tuple[Model, list[Model], dict[str, Model], dict[str, float], str]] = [
        (model, [previous], variate, HYPERPARAMETERS | {"mu": 0.0}, "no graphs"),
        (model, [], variate, HYPERPARAMETERS, "no graphs"),
        (model, [previous], {}, HYPERPARAMETERS, "no graphs"),
        (model, [], {}, {"mu": 1.0}, "'learning_rate' is missing"),
        (model[:1], [], {}, HYPERPARAMETERS, "model has 1 tensors"),
        ([model[0], torch.zeros(1)], [], {}, HYPERPARAMETERS, r"tensor 1 of model has the shape \[1\]"),
        (model, [[model[0][:1], model[1]]], variate, HYPERPARAMETERS, "tensor 0 of previous model 0"),
        (model, [previous], {"variate": [torch.zeros(1)]}, HYPERPARAMETERS, "tensor 0 of variate"),
    ]
    for *given, reason in wrong:
        with pytest.raises(TrainingFailed, match=reason):
            plan.begin_round(*given)  # type: ignore[arg-type]
    with pytest.raises(TrainingFailed, match="begun no round"):
        plan.step(*batch, EMPTY, EMPTY)


def test_a_failure_inside_a_graph_is_the_plans_and_the_next_call_works(
    plan: Plan, models: list[Model], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    plan.begin_round(models[0], [], {}, HYPERPARAMETERS)
    with pytest.raises(TrainingFailed, match="could not predict"):
        plan.predict(torch.zeros(2, FEATURES + 1))
    with pytest.raises(TrainingFailed, match="could not take a step"):
        plan.step(batch[0], batch[1] + CLASSES, EMPTY, EMPTY)
    assert torch.isfinite(plan.step(*batch, EMPTY, EMPTY))


def test_a_graph_cannot_change_the_shape_of_the_callers_tensor(tmp_path: Path, models: list[Model]) -> None:
    container = graph_containers.linear()
    made = graph(["inputs"], node("aten::unsqueeze_", v(0), 0), outputs={"outputs": [1]})
    container["graphs"][PREDICT] = made
    plan = load_plan(written(tmp_path, container), "cpu")
    plan.begin_round(models[0], [], {}, HYPERPARAMETERS)
    inputs = torch.ones(2, 3)
    assert plan.predict(inputs).shape == (1, 2, 3)
    assert inputs.shape == (2, 3)


def test_nothing_of_a_round_lasts_into_the_next(tmp_path: Path, models: list[Model]) -> None:
    container = graph_containers.linear()
    container["graphs"][BEGIN]["inputs"].append("steps")  # value 5: at most the classes
    container["graphs"][BEGIN]["nodes"] = [node("aten::narrow", v(0), 0, 0, v(5)), node("aten::clone", v(6))]
    container["graphs"][BEGIN]["kept"] = {"momenta.0": 7, "momenta.1": 7, "seen": 7}
    container["graphs"][SURVEY] = graph(["inputs"], kept={"surveyed": 0})
    container["graphs"][METRICS] = graph(["kept:surveyed"], node("aten::sum", v(0)), outputs={"sum": [1]})
    del container["graphs"][LATER_BEGIN:], container["rounds"][1:]
    plan = load_plan(written(tmp_path, container), "cpu")
    plan.begin_round(models[0], [], {}, HYPERPARAMETERS, 1)
    plan.survey(torch.ones(2), torch.ones(2), 0)
    assert plan.metrics() == {"sum": 2.0}
    plan.begin_round(models[0], [], {}, HYPERPARAMETERS, 1)
    with pytest.raises(TrainingFailed, match="nothing has stored surveyed"):
        plan.metrics()
    with pytest.raises(TrainingFailed, match="could not begin a round"):
        plan.begin_round(models[0], [], {}, HYPERPARAMETERS, CLASSES + 1)
    with pytest.raises(TrainingFailed, match="begun no round"):
        plan.end_round(1)


@pytest.mark.parametrize("memory_format", ["contiguous", "channels-last"])
def test_weights_of_convolutions_have_the_memory_format(
    tmp_path: Path, models: list[Model], memory_format: str
) -> None:
    container = graph_containers.linear()
    container["rounds"].append(container["rounds"][0] | {"memory_format": "contiguous"})
    container["tensors"].append({"shape": [2, 3, 4, 5], "dtype": "float32", "source": "zeros", "trained": False})
    container["graphs"][PREDICT] = graph(["tensor:4"], node("aten::clone", v(0)), outputs={"outputs": [1]})
    plan = load_plan(written(tmp_path, container), "cpu", memory_format=memory_format)
    plan.begin_round(models[0], [], {}, HYPERPARAMETERS)
    last = plan.predict(torch.ones(1)).is_contiguous(memory_format=torch.channels_last)
    assert last == (memory_format == "channels-last")


def test_mixed_precision_is_that_of_the_lowered_nodes(
    tmp_path: Path, models: list[Model], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    path = written(tmp_path, graph_containers.linear())
    plan = load_plan(path, "cpu", precision="bfloat16")
    plan.begin_round(models[0], [], {}, HYPERPARAMETERS)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        outputs = linear(loss_inputs(), *models[0])
    loss = plan.step(*batch, EMPTY, EMPTY)
    assert outputs.dtype == torch.bfloat16
    assert torch.equal(loss, cross_entropy(outputs, batch[1]))
    with pytest.raises(TrainingFailed, match="no graphs for float16"):
        load_plan(path, "cpu", precision="float16").begin_round(models[0], [], {}, HYPERPARAMETERS)


def _with_frozen() -> Json:
    container = graph_containers.linear()
    container["tensors"].append({"shape": [2], "dtype": "float32", "source": "frozen:0", "trained": False})
    container["graphs"][6] = graph(["tensor:4"], node("aten::clone", v(0)), outputs={"outputs": [1]})
    return container


def test_frozen_tensors_are_needed_and_checked(tmp_path: Path, models: list[Model]) -> None:
    path = written(tmp_path, _with_frozen())
    with pytest.raises(TrainingFailed, match="frozen tensors are missing"):
        load_plan(path, "cpu").begin_round(models[0], [], {}, HYPERPARAMETERS)
    with pytest.raises(TrainingFailed, match="tensor 0 of frozen tensors"):
        load_plan(path, "cpu", frozen=[torch.zeros(1)])
    plan = load_plan(path, "cpu", frozen=[torch.tensor([1.0, 2.0])])
    plan.begin_round(models[0], [], {}, HYPERPARAMETERS)
    assert plan.predict(torch.zeros(1)).tolist() == [1.0, 2.0]


def test_personal_tensors_are_needed(tmp_path: Path, models: list[Model]) -> None:
    container = graph_containers.linear()
    container["roles"]["personal"] = [[1]]
    plan = load_plan(written(tmp_path, container), "cpu")
    with pytest.raises(TrainingFailed, match="personal tensors are missing"):
        plan.begin_round(models[0], [], {}, HYPERPARAMETERS)
    plan.begin_round(models[0], [], {"personal": [torch.zeros(1)]}, HYPERPARAMETERS)


def test_a_missing_file_and_tensors_beyond_the_memory_are_reported(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match="cannot be loaded on 'cpu'"):
        load_plan(tmp_path / "plan.json", "cpu")
    container = graph_containers.linear()
    container["tensors"][3]["shape"] = [1 << 36]
    with refused(TrainingFailed, "tensors"):
        load_plan(written(tmp_path, container), "cpu")


def test_the_memory_format_is_one_that_the_plan_has(tmp_path: Path, models: list[Model]) -> None:
    container = graph_containers.linear()
    for each in container["rounds"]:
        each["memory_format"] = "contiguous"
    path = written(tmp_path, container)
    load_plan(path, "cpu").begin_round(models[0], [], {}, HYPERPARAMETERS)
    with pytest.raises(TrainingFailed, match="channels-last"):
        load_plan(path, "cpu", memory_format="channels-last").begin_round(models[0], [], {}, HYPERPARAMETERS)


WITHOUT_TORCHSCRIPT = """
import sys, types, torch

def raising(*args, **kwargs):
    raise RuntimeError("TorchScript is gone")

for name, value in list(vars(torch.jit).items()):
    if isinstance(value, types.FunctionType | type):
        setattr(torch.jit, name, raising)
torch._C._jit_set_profiling_executor = torch.jit.optimized_execution = raising
from pathlib import Path
from moonfed.plan.interface import load_plan
from tests.support.graph_containers import CLASSES, FEATURES
plan = load_plan(Path(sys.argv[1]), "cpu")
plan.begin_round([torch.ones(CLASSES, FEATURES), torch.ones(CLASSES)], [], {}, {"learning_rate": 0.1, "mu": 0.0})
batch = torch.ones(4, FEATURES), torch.zeros(4, dtype=torch.int64)
assert torch.isfinite(plan.step(*batch, torch.empty(0), torch.empty(0)))
plan.end_round(1), plan.metrics(), plan.evaluate(*batch), plan.predict(batch[0])
print("trained")
"""


def test_a_torch_without_torchscript_suffices(tmp_path: Path) -> None:
    path = written(tmp_path, graph_containers.linear())
    command = [sys.executable, "-c", WITHOUT_TORCHSCRIPT, str(path)]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout == "trained\n"
