"""The check of an operator's arguments: each has the type that torch's schema declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.errors import UnsafePlan
from moonfed.plan.graph.arguments import Checker, Constant, Parameter
from moonfed.plan.graph.container import Named
from moonfed.plan.interface import load_plan
from tests.support import graph_containers
from tests.support.graph_containers import PREDICT, Change, node, predicting, relu, require_refused, v, written
from tests.support.refusals import refused

FLOAT32 = {"dtype": "float32"}
X = v(3)
P = f"graphs[{PREDICT}]"
N = f"{P}.nodes[0]"
HOSTILE: dict[str, tuple[Change, str]] = {
    # arguments
    "a number for a written tensor": (predicting(node("aten::relu_", 1.0)), f"{N}.args[0]"),
    "a list for a tensor": (relu([X]), f"{N}.args[0]"),
    "null for a tensor": (relu(None), f"{N}.args[0]"),
    "text for a tensor": (relu({"string": "none"}), f"{N}.args[0]"),
    "plain text": (relu("inputs"), f"{N}.args[0]"),
    "an unknown object": (relu({"pickle": "x"}), f"{N}.args[0]"),
    "an object of two": (relu({"v": 3, "dtype": "float32"}), f"{N}.args[0]"),
    "a tensor for tensors": (predicting(node("aten::cat", X)), f"{N}.args[0]"),
    "numbers for tensors": (predicting(node("aten::cat", [1.0])), f"{N}.args[0][0]"),
    "null among tensors": (predicting(node("aten::cat", [X, None])), f"{N}.args[0][1]"),
    "a number for an optional tensor": (predicting(node("aten::linear", X, v(0), 1.0)), f"{N}.args[2]"),
    "a tensor for an integer": (predicting(node("aten::select.int", X, 0, X)), f"{N}.args[2]"),
    "a float for an integer": (predicting(node("aten::select.int", X, 0, 1.0)), f"{N}.args[2]"),
    "a truth value for an integer": (predicting(node("aten::select.int", X, 0, True)), f"{N}.args[2]"),
    "null for an integer": (predicting(node("aten::select.int", X, 0, None)), f"{N}.args[2]"),
    "a float value for an integer": (
        predicting(node("aten::select.int", v(0), 0, v(1)), inputs=["inputs", "hyperparameter:mu"]),
        f"{N}.args[2]",
    ),
    "a number of unknown kind for an integer": (
        predicting(node("aten::item", X), node("aten::select.int", X, 0, v(4))),
        f"{P}.nodes[1].args[2]",
    ),
    "a float in a size": (predicting(node("aten::reshape", X, [-1, 2.0])), f"{N}.args[1][1]"),
    "a truth value in a size": (predicting(node("aten::reshape", X, [True])), f"{N}.args[1][0]"),
    "a number for a size": (predicting(node("aten::reshape", X, 4)), f"{N}.args[1]"),
    "a list within a size": (predicting(node("aten::reshape", X, [[1]])), f"{N}.args[1][0]"),
    "a stride of three": (predicting(node("aten::max_pool2d", X, [2, 2], [1, 1, 1])), f"{N}.args[2]"),
    "a window beyond 32 bits": (predicting(node("aten::max_pool1d", X, [1 << 44], [1], [4])), f"{N}.args[1][0]"),
    "a window of 31 bits and one": (predicting(node("aten::max_pool1d", X, 1 << 31)), f"{N}.args[1]"),
    "a negative window": (predicting(node("aten::max_pool1d", X, [2], padding=[-1])), f"{N}.padding[0]"),
    "a value for a window": (
        predicting(node("aten::sym_size.int", X, 0), node("aten::max_pool1d", X, [v(4)])),
        f"{P}.nodes[1].args[1][0]",
    ),
    "an integer for a truth value": (predicting(node("aten::dropout", X, 0.5, 1)), f"{N}.args[2]"),
    "a value for a truth value": (predicting(node("aten::dropout", X, 0.5, X)), f"{N}.args[2]"),
    "a truth value for a float": (predicting(node("aten::dropout", X, True, True)), f"{N}.args[1]"),
    "a tensor for a number": (predicting(node("aten::add.Scalar", X, X)), f"{N}.args[1]"),
    "text for a number": (predicting(node("aten::add.Scalar", X, {"string": "1"})), f"{N}.args[1]"),
    "not a number, misspelt": (predicting(node("aten::add.Scalar", X, {"float": "NaN"})), f"{N}.args[1]"),
    "infinity as a data type": (
        predicting(node("aten::add.Scalar", X, {"dtype": "inf"})),
        f"dtype in {N}.args[1]",
    ),
    "a list for infinity": (predicting(node("aten::add.Scalar", X, {"float": []})), f"{N}.args[1]"),
    "not a number for an integer": (predicting(node("aten::select.int", X, 0, {"float": "nan"})), f"{N}.args[2]"),
    "infinity for an integer": (predicting(node("aten::select.int", X, 0, {"float": "inf"})), f"{N}.args[2]"),
    "a generator": (predicting(node("aten::bernoulli_.float", X, 0.5, generator=7)), f"{N}.generator"),
    "a reduction that is none": (predicting(node("aten::mse_loss", X, X, 77)), f"{N}.args[2]"),
    "a computed reduction": (
        predicting(node("aten::sym_size.int", X, 0), node("aten::mse_loss", X, X, v(4))),
        f"{P}.nodes[1].args[2]",
    ),
    "an interpolation that is none": (predicting(node("aten::grid_sampler", X, X, -5, 0, False)), f"{N}.args[2]"),
    "pinned memory": (predicting(node("aten::zeros", [1], pin_memory=True)), f"{N}.pin_memory"),
    # data types, layouts, memory formats, devices
    "an integer for a data type": (predicting(node("aten::sum", X, dtype=-5)), f"{N}.dtype"),
    "a valid integer for a data type": (predicting(node("aten::sum", X, dtype=6)), f"{N}.dtype"),
    "a computed data type": (
        predicting(node("aten::sym_size.int", X, 0), node("aten::sum", X, dtype=v(4))),
        f"{P}.nodes[1].dtype",
    ),
    "a data type that plans lack": (
        predicting(node("aten::sum", X, dtype={"dtype": "complex64"})),
        f"dtype in {N}.kwargs.dtype",
    ),
    "an attribute of torch for a data type": (
        predicting(node("aten::sum", X, dtype={"dtype": "__builtins__"})),
        f"dtype in {N}.kwargs.dtype",
    ),
    "a layout for a data type": (predicting(node("aten::sum", X, dtype={"layout": "strided"})), f"{N}.dtype"),
    "a sparse layout": (
        predicting(node("aten::zeros_like", X, layout={"layout": "sparse_coo"})),
        f"layout in {N}.kwargs.layout",
    ),
    "an integer for a memory format": (predicting(node("aten::clone", X, memory_format=77)), f"{N}.memory_format"),
    "an unknown memory format": (
        predicting(node("aten::clone", X, memory_format={"memory_format": "channels_last_3d"})),
        f"memory_format in {N}.kwargs.memory_format",
    ),
    "a data type of a data type": (
        predicting(node("aten::sum", X, dtype={"dtype": FLOAT32})),
        f"dtype in {N}.kwargs.dtype",
    ),
    "another device": (
        predicting(node("aten::zeros", [1], device={"device": "cuda:1"})),
        f"device in {N}.kwargs.device",
    ),
    "text for a device": (predicting(node("aten::zeros", [1], device={"string": "meta"})), f"{N}.device"),
    # strings
    "a string that no operator has": (
        predicting(node("aten::gelu", X, approximate={"string": "exact"})),
        f"{N}.approximate",
    ),
    "an equation with other characters": (predicting(node("aten::einsum", {"string": "i\n->i"}, [X])), f"{N}.args[0]"),
    "a layout for a string": (predicting(node("aten::einsum", {"layout": "strided"}, [X])), f"{N}.args[0]"),
    "a plain text for a string": (predicting(node("aten::gelu", X, approximate="none")), f"{N}.kwargs.approximate"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_argument_of_another_type_is_refused_before_any_operator_runs(tmp_path: Path, name: str) -> None:
    change, field = HOSTILE[name]
    require_refused(tmp_path, change, field)


def test_arguments_of_the_declared_types_are_accepted(tmp_path: Path) -> None:
    plan = graph_containers.linear()
    predicting(
        node("aten::add.Scalar", X, {"float": "-inf"}),
        node("aten::add.Scalar", X, {"float": "nan"}),
        node("aten::index.Tensor", v(5), [None, v(2)]),
        node("aten::sum.dim_IntList", X, [0, 1], dtype=FLOAT32),
        node("aten::sum.dim_IntList", X, 1),
        node("aten::bernoulli_.float", X, 0.5, generator=None),
        node("aten::mse_loss", X, X, 1),
        node("aten::einsum", {"string": "ij,jk->ik"}, [X, X], path=None),
        node("aten::mul.Tensor", X, 2),
        node("scalar::pow", 2, 0.5),
        node("aten::dropout", X, v(13), True),
        node("aten::zeros", [1], pin_memory=False),
        node("aten::div.out", X, X, out=v(4)),
    )(plan)
    load_plan(written(tmp_path, plan), "cpu")


@pytest.mark.parametrize("name", ["dtype", "layout", "memory_format"])
def test_an_integer_that_stands_for_a_data_type_by_its_name_alone_is_refused(name: str) -> None:
    """Some operators of TorchScript declare one as an integer."""
    parameter = Parameter(name, "int", optional=True, length=None, keyword_only=False, required=False, written=False)
    assert Checker([]).operand(None, parameter, "x") == Constant(None)
    with refused(UnsafePlan, "x"):
        Checker([]).operand(6, parameter, "x")


def test_a_string_is_refused_for_an_argument_whose_strings_were_not_reviewed() -> None:
    parameter = Parameter("path", "str", optional=False, length=None, keyword_only=False, required=True, written=False)
    with refused(UnsafePlan, "x", "none"):
        Checker([]).operand(Named("string", "none"), parameter, "x")


def test_a_parameter_of_an_unknown_type_cannot_be_given() -> None:
    parameter = Parameter("x", "Storage", optional=False, length=None, keyword_only=False, required=True, written=False)
    with refused(UnsafePlan, "x"):
        Checker([]).operand(1, parameter, "x")
