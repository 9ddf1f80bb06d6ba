from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection.archive import inspect_archive
from moonfed.plan.inspection.older_torch import OLDEST_TORCH, minimum_torch
from moonfed.plan.inspection.operator_list import allowed_operators
from moonfed.plan.inspection.operators import compile_archive, load_module, operators
from moonfed.plan.interface import load_plan
from tests.support.attack_plans import FORBIDDEN_OPERATORS, Harmless, archive_of
from tests.support.refusals import refused
from tools.generate_operators import FILE, IMAGE, compiled, generated, plans


@pytest.mark.parametrize("name", FORBIDDEN_OPERATORS)
def test_operators_that_reach_beyond_their_tensors_are_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "plan.pt").write_bytes(archive_of(FORBIDDEN_OPERATORS[name]()))
    with refused(UnsafePlan, "operator") as caught:
        load_plan(tmp_path / "plan.pt", "cpu")
    assert str(caught.value.value).startswith(name.split(" ")[0])


class _Sorting(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        numbers, names, flags = [2, 0, 1], ["b", "a"], [True, False]
        numbers.sort(reverse=True)
        names.sort()
        flags.sort()
        if names[0] == "a" and not flags[0]:
            inputs = inputs[numbers]
        return inputs.sort()[0] + torch.sort(inputs, stable=True, dim=0)[0]


def test_tensors_and_lists_with_an_order_may_be_sorted() -> None:
    load_module(inspect_archive(archive_of(_Sorting())), "cpu")


class Hidden(torch.nn.Module):
    """A module that hides operators in a submodule, one in a function called below a condition and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Harmless()

    @torch.jit.export
    def unused(self, inputs: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            if count > 1:
                inputs = _hide(inputs).digamma()
        return inputs

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(inputs)
        return result


def _hide(inputs: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(inputs, [1], [1], 7)


def test_operators_are_found_in_functions_blocks_and_submodules() -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = Hidden()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.hidden(inputs)
            return result

    archive = archive_of(Outer())
    unit, _ = compile_archive(archive)
    assert {"aten::as_strided", "aten::digamma", "aten::relu", "prim::Loop"} <= operators(unit)
    for check in (inspect_archive, lambda content: load_module(content, "cpu")):
        with pytest.raises(UnsafePlan, match="'aten::as_strided', and 1 other"):
            check(archive)


def test_operators_are_found_in_functions_that_a_compilation_defines() -> None:
    """Some versions of torch compile a function only when its graph is requested."""
    known: list[Any] = []

    class Calling:
        qualified_name = "calling"

        @property
        def graph(self) -> object:
            known.append(SimpleNamespace(qualified_name="called", graph=torch.jit.script(_hide).graph))
            return torch.jit.script(_harmless).graph

    known.append(Calling())
    assert operators(SimpleNamespace(get_functions=lambda: list(known))) >= {"aten::relu", "aten::as_strided"}


def test_operators_are_found_in_graphs_that_are_attributes() -> None:
    """Graphs of forked calls and of optimised code are attributes."""

    def forking(inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.jit.wait(torch.jit.fork(_hide, inputs))  # type: ignore[no-untyped-call]
        return result

    graph = torch.jit.script(forking).graph
    unit = SimpleNamespace(get_functions=lambda: [SimpleNamespace(qualified_name="forking", graph=graph)])
    assert operators(unit) >= {"prim::fork", "prim::CallFunction"}, "the call is in the graph of the fork"


def _harmless(inputs: torch.Tensor) -> torch.Tensor:
    return inputs.relu()


def test_no_operator_on_the_list_reaches_files_memory_or_the_log() -> None:
    words = (
        "file",
        "save",
        "load",
        "strided",
        "reinterpret",
        "set_.",
        "resize",
        "print",
        "data_ptr",
        "storage",
        "lstm",
        "_fused",
    )
    ours = {name for name in allowed_operators() if name.split("::")[0] not in ("aten", "prim")}
    assert [name for name in allowed_operators() - ours if any(word in name.lower() for word in words)] == []
    assert ours == {"moonfed::sgd_", "moonfed::adam_", "moonfed::lstm"}


@pytest.fixture(scope="module")
def honest() -> list[bytes]:
    """A plan of each method, network and augmentation."""
    return list(plans())


@pytest.mark.slow
def test_the_generated_list_is_up_to_date(honest: list[bytes]) -> None:
    assert FILE.read_text() == generated(honest), "run `make operators`"


def test_moonfeds_own_plans_need_no_torch_newer_than_the_oldest_that_is_supported(honest: list[bytes]) -> None:
    """A Jetson's torch is older than the engineer's; images are preprocessed in each of these plans."""
    assert {minimum_torch(plan) for plan in honest} == {OLDEST_TORCH}


def test_every_line_of_moonfeds_own_plans_is_accepted(honest: list[bytes]) -> None:
    for plan in honest:
        inspect_archive(plan)


@pytest.mark.parametrize("network", ["mobilenet_v3_small"])
def test_torchvisions_networks_use_allowed_operators(network: str, tmp_path: Path) -> None:
    (tmp_path / "plan.pt").write_bytes(compiled(f"torchvision:{network}", IMAGE, "fedavg", "none"))
    load_plan(tmp_path / "plan.pt", "cpu")
