"""The inspection of containers: everything that could do more than a plan may is refused before any of it runs."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from moonfed.errors import UnsafePlan, VersionMismatch
from moonfed.plan.graph import container, inspection
from moonfed.plan.inspection.operator_list import allowed_operators
from moonfed.plan.interface import load_plan
from tests.support import graph_containers
from tests.support.graph_containers import (
    BEGIN,
    END,
    LATER_BEGIN,
    METRIC,
    PREDICT,
    PREDICTION,
    STEP,
    SURVEY,
    Change,
    Recorder,
    graph,
    linear,
    node,
    predicting,
    relu,
    removing,
    require_refused,
    setting,
    together,
    v,
    written,
)
from tests.support.refusals import refused

X = v(3)
P = f"graphs[{PREDICT}]"
N = f"{P}.nodes[0]"
HOSTILE: dict[str, tuple[Change, str]] = {
    # operators
    "an unknown namespace": (predicting(node("prims::add", X, X)), "operator"),
    "a file": (predicting(node("aten::from_file", {"string": "/etc/passwd"})), "operator"),
    "memory": (predicting(node("aten::as_strided", X, [1], [1], 99)), "operator"),
    "a fused optimiser": (predicting(node("aten::_fused_sgd_", [X], [X], [X], results=0)), "operator"),
    "a backward operator": (
        predicting(node("aten::max_pool2d_with_indices_backward", X, X, [2], [2], [0], [1], False, X)),
        "operator",
    ),
    "a result that is written over": (predicting(node("aten::add.out", X, X, out=X)), "operator"),
    "a statement of TorchScript": (predicting(node("aten::add.int", 1, 2)), "operator"),
    "a conversion without a data type": (predicting(node("aten::to.prim_Device", X, None, 9, False, True)), "operator"),
    "a truth value as a result": (predicting(node("aten::is_floating_point", X)), "operator"),
    "a warning": (predicting(node("aten::warn", {"string": "x"}, results=0)), "operator"),
    "a mode of the process": (predicting(node("aten::set_grad_enabled", False, results=0)), "operator"),
    "unknown arithmetic": (predicting(node("scalar::exec", 1)), "operator"),
    "Python's arithmetic": (predicting(node("scalar::__import__", 1)), "operator"),
    "two overloads": (predicting(node("aten::add.Tensor.Tensor", X, X)), f"{N}.op"),
    "a name that is none": (predicting(node("eval('1')", X)), f"{N}.op"),
    "an operator that is no text": (predicting(node(["aten::relu"], X)), f"{N}.op"),  # type: ignore[arg-type]
    # values
    "a forward reference": (relu(v(4)), f"{N}.args[0]"),
    "a later value": (relu(v(9999)), f"{N}.args[0]"),
    "a negative value": (relu(v(-1)), f"{N}.args[0]"),
    "a value that is no integer": (relu(v(1.0)), f"{N}.args[0]"),  # type: ignore[arg-type]
    "a value that is a truth value": (relu(v(True)), f"{N}.args[0]"),
    "a huge value": (relu(v(1 << 62)), f"{N}.args[0]"),
    "a result that nothing computed": (predicting(node("aten::relu", X), result=5), f"{P}'s result outputs"),
    "a kept value that nothing computed": (
        setting("graphs", BEGIN, "kept", "seen", to=99),
        f"graphs[{BEGIN}]'s result seen",
    ),
    # calls
    "too many arguments": (relu(X, X), f"{N}.args"),
    "an argument by position that has a name": (predicting(node("aten::add.Tensor", X, X, 1)), f"{N}.args"),
    "too few arguments": (relu(), f"{N}.kwargs"),
    "an argument twice": (relu(X, self=X), f"{N}.kwargs"),
    "an unknown argument": (relu(X, inplace=True), f"{N}.kwargs"),
    "an argument that is code": (relu(X, **{"x=1)#": True}), f"name in {N}.kwargs"),
    "no results": (predicting(node("aten::relu", X, results=0), result=3), f"{N}.results"),
    "another number of results": (predicting(node("aten::relu", X, results=2)), f"{N}.results"),
    "negative results": (predicting(node("aten::relu", X, results=-1), result=3), f"{N}.results"),
    "a truth value of results": (predicting(node("aten::relu", X, results=True), result=3), f"{N}.results"),
    "a tuple's wrong number": (predicting(node("aten::std_mean", X, results=3)), f"{N}.results"),
    "a million results": (predicting(node("aten::unbind.int", X, results=1_000_000), result=3), f"{N}.results"),
    # grad
    "the gradient of a constant": (predicting(node("grad", X, [v(2)])), f"{N}.args[1][0]"),
    "the gradient of an input": (predicting(node("grad", v(0), [X])), f"{N}.args[1][0]"),
    "the gradient of a result": (
        predicting(node("aten::relu", v(0)), node("grad", v(4), [v(4)])),
        f"{P}.nodes[1].args[1][0]",
    ),
    "the gradients of a value": (predicting(node("grad", X, v(0))), f"{N}.args"),
    "gradients of nothing": (predicting(node("grad", X), result=3), f"{N}.args"),
    "gradients with a third argument": (predicting(node("grad", X, [v(0)], True)), f"{N}.args"),
    "no gradients": (predicting(node("grad", X, [], results=0), result=3), f"{N}.args"),
    "the gradient of a number": (predicting(node("grad", 1.0, [v(0)])), f"{N}.args[0]"),
    "too few gradients": (predicting(node("grad", X, [v(0), v(1)])), f"{N}.results"),
    "options of gradients": (predicting(node("grad", X, [v(0)], create_graph=True)), f"{N}.args"),
    # numbers and modes
    "arithmetic on tensors": (predicting(node("scalar::add", X, 1)), f"{N}.args[0]"),
    "arithmetic on truth values": (predicting(node("scalar::add", True, 1)), f"{N}.args[0]"),
    "arithmetic on lists": (predicting(node("scalar::mul", [1], 9)), f"{N}.args[0]"),
    "arithmetic of three": (predicting(node("scalar::pow", 2, 3, 5)), f"{N}.args"),
    "a mode that is a number": (predicting(node("grad_mode", 1, results=0), result=3), f"{N}.args"),
    "arithmetic with options": (predicting(node("scalar::add", 1, 2, alpha=2)), f"{N}.args"),
    "arithmetic with two results": (predicting(node("scalar::add", 1, 2, results=2)), f"{N}.args"),
    "two modes": (predicting(node("grad_mode", True, True, results=0), result=3), f"{N}.args"),
    "a mode with options": (predicting(node("grad_mode", True, results=0, inference=True), result=3), f"{N}.args"),
    "a mode with a result": (predicting(node("grad_mode", True)), f"{N}.args"),
    # inputs
    "a tensor that is absent": (setting("graphs", END, "inputs", 0, to="tensor:4"), f"graphs[{END}].inputs[0]"),
    "a model's tensor that is absent": (
        setting("graphs", BEGIN, "inputs", 4, to="model:2"),
        f"graphs[{BEGIN}].inputs[4]",
    ),
    "a previous model's tensor that is absent": (
        setting("graphs", LATER_BEGIN, "inputs", 5, to="previous:0:2"),
        f"graphs[{LATER_BEGIN}].inputs[5]",
    ),
    "a role's tensor that is absent": (
        setting("graphs", LATER_BEGIN, "inputs", 7, to="received:variate:1"),
        f"graphs[{LATER_BEGIN}].inputs[7]",
    ),
    "an unknown role": (
        setting("graphs", LATER_BEGIN, "inputs", 7, to="received:prototypes:0"),
        f"graphs[{LATER_BEGIN}].inputs[7]",
    ),
    "an unknown hyperparameter": (
        setting("graphs", STEP, "inputs", 7, to="hyperparameter:tau"),
        f"graphs[{STEP}].inputs[7]",
    ),
    "an unknown input": (setting("graphs", STEP, "inputs", 5, to="secrets"), f"graphs[{STEP}].inputs[5]"),
    "a negative tensor": (setting("graphs", STEP, "inputs", 0, to="tensor:-1"), f"graphs[{STEP}].inputs[0]"),
    "an input twice": (setting("graphs", STEP, "inputs", 1, to="tensor:0"), f"graphs[{STEP}].inputs"),
    "a kept value that nothing keeps": (setting("graphs", SURVEY, "inputs", 0, to="kept:other"), "kept value"),
    "a kept value of two kinds": (
        together(
            setting("graphs", SURVEY, "nodes", 1, to=node("aten::sym_size.int", v(0), 0)),
        ),
        f"graphs[{SURVEY}].kept.seen",
    ),
    # rounds
    "a graph that is absent": (setting("rounds", 0, "graphs", "end", to=13), "rounds[0].graphs.end"),
    "an entry point without a graph": (removing("rounds", 0, "graphs", "predict"), "rounds[0].graphs's field"),
    "an unknown entry point": (setting("rounds", 0, "graphs", "setup", to=0), "rounds[0].graphs's field"),
    "targets in a prediction": (setting("graphs", PREDICT, "inputs", 3, to="targets"), "rounds[0].graphs.predict"),
    "the model in a step": (setting("rounds", 0, "graphs", "step", to=BEGIN), "rounds[0].graphs.step"),
    "kept values before they are kept": (setting("rounds", 1, "graphs", "begin", to=BEGIN), "rounds[1].graphs."),
    "kept values in the beginning": (
        together(
            setting("graphs", BEGIN, "inputs", 4, to="kept:variate"),
            setting("graphs", BEGIN, "nodes", 2, "args", 1, to=v(4)),
        ),
        "rounds[0].graphs.begin",
    ),
    "previous models that are not given": (setting("rounds", 1, "previous", to=0), "rounds[1].graphs.begin"),
    "roles that are not given": (setting("rounds", 1, "roles", to=[]), "rounds[1].graphs.begin"),
    "a round's role that is unknown": (setting("rounds", 0, "roles", to=["other"]), "rounds[0].roles"),
    "references without their graph": (setting("rounds", 0, "reference_count", to=1), "rounds[0].reference_count"),
    "no loss": (setting("graphs", STEP, "outputs", to={}), "rounds[0].graphs.step"),
    "two losses": (setting("graphs", STEP, "outputs", to={"loss": [10, 11]}), "rounds[0].graphs.step"),
    "results of a beginning": (setting("graphs", BEGIN, "outputs", to={"model": [0]}), "rounds[0].graphs.begin"),
    "no model": (setting("graphs", END, "outputs", to={"other": [2]}), "rounds[0].graphs.end"),
    "a number for a loss": (setting("graphs", STEP, "outputs", to={"loss": [7]}), "rounds[0].graphs.step"),
    "an unknown condition": (setting("rounds", 1, "where", to=[["tau", ">", 0.0]]), "rounds[1].where"),
    "a comparison that is none": (setting("rounds", 1, "where", to=[["mu", "is", 0.0]]), "rounds[1].where[0]"),
    "a condition of two": (setting("rounds", 1, "where", to=[["mu", ">"]]), "rounds[1].where[0]"),
    "a condition on text": (setting("rounds", 1, "where", to=[["mu", ">", "0"]]), "rounds[1].where[0]"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_plan_is_refused_before_any_operator_runs(tmp_path: Path, name: str) -> None:
    change, field = HOSTILE[name]
    require_refused(tmp_path, change, field)


def test_an_operator_or_overload_that_this_torch_lacks_is_another_versions(tmp_path: Path) -> None:
    plan = graph_containers.linear()
    predicting(node("aten::add.Tensors", X, X))(plan)
    with Recorder() as recorder, refused(VersionMismatch, "operator", "aten::add.Tensors") as caught:
        load_plan(written(tmp_path, plan), "cpu")
    assert torch.__version__ in str(caught.value)
    assert recorder.operators == []


def test_no_backward_operator_is_on_the_list() -> None:
    assert [name for name in allowed_operators() if "backward" in name] == []


def test_backward_operators_are_refused_even_if_they_were_on_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "aten::threshold_backward"
    monkeypatch.setattr(inspection, "allowed_operators", lambda: allowed_operators() | {name})
    plan = graph_containers.linear()
    predicting(node(name, X, X, 0.0))(plan)
    with refused(UnsafePlan, "operator", name):
        load_plan(written(tmp_path, plan), "cpu")


@pytest.mark.parametrize(
    ("first", "second", "distinct"),
    [
        ([], [], False),
        ([["mu", "==", 0.0]], [["mu", "!=", 0.0]], True),
        ([["mu", "<", 1.0]], [["mu", ">=", 1.0]], True),
        ([["mu", "<=", 1.0]], [["mu", ">=", 1.0]], False),
        ([["mu", ">", 1.0]], [["mu", "<", 2.0]], False),
        ([["mu", "==", 1.0], ["learning_rate", ">", 0.0]], [["mu", "==", 1.0], ["learning_rate", "<=", 0.0]], True),
        ([["mu", "==", 1.0]], [["learning_rate", "==", 1.0]], False),
        ([["mu", ">", 1.0], ["mu", "<", 2.0]], [["mu", "==", 1.5]], False),
        ([["mu", "!=", 1.0]], [["mu", "!=", 2.0]], False),
    ],
)
def test_no_two_rounds_may_fit_at_once(tmp_path: Path, first: object, second: object, distinct: bool) -> None:
    plan = graph_containers.linear()
    plan["rounds"] = [plan["rounds"][0] | {"where": first}, plan["rounds"][0] | {"where": second}]
    path = written(tmp_path, plan)
    if distinct:
        load_plan(path, "cpu")
    else:
        with refused(UnsafePlan, "rounds[1].where"):
            load_plan(path, "cpu")


def test_rounds_that_only_conditions_distinguish_are_few(tmp_path: Path) -> None:
    plan = graph_containers.linear()
    plan["rounds"] = [
        plan["rounds"][0] | {"where": [["mu", "==", float(at)]]} for at in range(inspection.MAXIMUM_ALIKE + 1)
    ]
    with refused(UnsafePlan, "number of rounds that only their conditions distinguish"):
        load_plan(written(tmp_path, plan), "cpu")


def test_chains_of_kept_values_are_short(tmp_path: Path) -> None:
    plan = graph_containers.linear()
    plan["graphs"] += [graph([f"kept:{at}"], kept={str(at + 1): 0}) for at in reversed(range(40))]
    plan["graphs"][BEGIN]["kept"]["0"] = 0
    with refused(UnsafePlan, "kept value"):
        load_plan(written(tmp_path, plan), "cpu")


def test_the_kept_value_that_nothing_keeps_is_named(tmp_path: Path) -> None:
    plan = linear()
    plan["graphs"].append(graph(["tensor:0", "kept:seen", "kept:other"]))
    with refused(UnsafePlan, "kept value", "other"):
        load_plan(written(tmp_path, plan), "cpu")


@pytest.mark.parametrize("number", [True, False])
def test_a_kept_value_has_the_kind_that_was_kept(tmp_path: Path, number: bool) -> None:
    """A tensor is no index, and an integer is no tensor."""
    plan = linear()
    begin = plan["graphs"][BEGIN]
    begin["inputs"].append("steps")
    begin["nodes"] = []
    begin["kept"] = {"momenta.0": 0, "momenta.1": 1, "seen": 0, "count": begin["inputs"].index("steps")}
    del plan["graphs"][LATER_BEGIN:], plan["rounds"][1:]
    name = "kept:count" if number else "kept:seen"
    for used, fits in ((node("aten::relu_", v(4)), not number), (node("aten::select.int", X, 0, v(4)), number)):
        predicting(used, inputs=[*PREDICTION, name])(plan)
        file = written(tmp_path, plan)
        with nullcontext() if fits else refused(UnsafePlan, f"{N}.args[{2 if 'select' in used['op'] else 0}]"):
            load_plan(file, "cpu")


def test_every_error_is_ours_for_any_json_in_any_place(tmp_path: Path) -> None:
    """Each field in turn is replaced by values of other types."""
    plan = graph_containers.linear()
    plan["graphs"] = plan["graphs"][: METRIC + 1]
    plan["rounds"] = plan["rounds"][:1]
    others: list[object] = [None, True, -1, 1.5, "x", [], {}, [[]], {"v": 0}, 1 << 62]
    for at, path in enumerate(_paths(plan)):
        changed = copy.deepcopy(plan)
        setting(*path, to=others[at % len(others)])(changed)
        with suppress(UnsafePlan, VersionMismatch):
            inspection.inspected(container.read_container(json.dumps(changed).encode()))


def _paths(value: Any, *path: str | int) -> Any:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*path, name)
        yield from _paths(each, *path, name)
