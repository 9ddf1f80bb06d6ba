"""Numbers of data types, layouts and memory formats: torch crashes with an invalid one, so none may be computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection.archive import inspect_archive
from moonfed.plan.inspection.enumerations import LAYOUT, MEMORY_FORMAT, SCALAR_TYPE, VALID
from moonfed.plan.inspection.operators import load_module
from tests.support.attack_plans import archive_of, rewritten, with_code
from tests.support.refusals import refused

# TorchScript has integers for data types, and these are no integers for mypy.
# mypy: disable-error-code="arg-type, assignment, attr-defined, call-overload, empty-body, misc"
# mypy: disable-error-code="no-any-return, operator, return-value"
INVALID = 99
Numbers = list[int]


def load(archive: bytes) -> torch.nn.Module:
    return load_module(inspect_archive(archive), "cpu")


@torch.jit.interface
class Kind(torch.nn.Module):
    """A submodule that turns tensors into numbers."""

    def kind_of(self, inputs: torch.Tensor) -> int:
        pass

    def cast(self, inputs: torch.Tensor, kind: int) -> torch.Tensor:
        pass


class _Kind(torch.nn.Module):
    @torch.jit.export
    def kind_of(self, inputs: torch.Tensor) -> int:
        return inputs.dtype

    @torch.jit.export
    def cast(self, inputs: torch.Tensor, kind: int) -> torch.Tensor:
        return inputs.to(kind)


class _ComputedKind(_Kind):
    @torch.jit.export
    def kind_of(self, inputs: torch.Tensor) -> int:
        return inputs.numel()


def _by_interface(kind: Kind, inputs: torch.Tensor) -> torch.Tensor:
    return kind.cast(inputs, kind.kind_of(inputs))


def _of_interface(kind: Kind, inputs: torch.Tensor) -> torch.Tensor:
    return inputs.to(kind.kind_of(inputs))


def _to_interface(kind: Kind, inputs: torch.Tensor) -> torch.Tensor:
    return kind.cast(inputs, inputs.numel())


class _Honest(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kind = _Kind()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found = inputs
        kind = torch.float64
        for step in range(3):
            if step == 1:
                kind = inputs.dtype
            elif step == 2:
                kind = _chosen(inputs, None)
            found = found + torch.zeros([1], dtype=kind, layout=inputs.layout)
        found = found + torch.nn.functional.softmax(inputs, 0, dtype=torch.float64)
        found = found.contiguous(memory_format=torch.channels_last) if found.dim() == 4 else found
        found = found.to(torch.bfloat16).to(inputs.dtype) + inputs.to("cpu").to(found)
        found = found + _by_interface(self.kind, inputs)
        found = found.to("cpu", copy=True).to(inputs.device, copy=True).to(torch.float64, copy=True)
        return found.clone(memory_format=torch.preserve_format)


def _chosen(inputs: torch.Tensor, kind: int | None) -> int:
    if kind is not None:
        return kind
    if inputs.dim() == 0:
        raise ValueError("no dimension")
    if inputs.dim() > 3:
        kind = torch.float32
    elif inputs.dim() > 2:
        kind = torch.int64
    else:
        raise ValueError("few dimensions")
    return kind


def test_constants_and_the_numbers_of_tensors_may_take_any_path() -> None:
    loaded = load(archive_of(_Honest()))
    assert loaded(torch.ones(2, 2, 2, 2)).dtype == torch.float64


class _Holder(torch.nn.Module):
    """A module with numbers in attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 99
        self.numbers = [99]
        self.chosen = torch.jit.Attribute(99, int | None)

    @torch.jit.export
    def measured(self, inputs: torch.Tensor) -> int:
        return inputs.numel()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


class _Caster(_Holder):
    @torch.jit.export
    def cast(self, inputs: torch.Tensor, kind: int) -> torch.Tensor:
        return inputs.to(kind)


class _Constant(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.zeros([1], dtype=99)


class _Attribute(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.ones([1], dtype=self.number)


class _Element(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.full([1], 1.0, dtype=self.numbers[0])


class _ElementOfConstants(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.eye(1, dtype=[6, 99][1])


class _Sum(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.sum(dtype=inputs.dtype + 93)


class _Data(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.cumsum(0, dtype=int(inputs.sum().item()))


class _Conditional(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(inputs, dtype=6 if inputs.numel() > 5 else 99)


class _Loop(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        kind, following = 6, 6
        for _ in range(inputs.numel()):
            kind = following
            following = 99
        return torch.arange(5, dtype=kind)


class _LoopStart(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        kind = 99
        for _ in range(inputs.numel()):
            kind = 6
        return inputs.prod(dtype=kind)


class _Iteration(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for number in range(99):
            inputs = inputs.to(number)
        return inputs


class _Result(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.to(self.measured(inputs))


class _FunctionsResult(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.to(_measured(inputs))


def _measured(inputs: torch.Tensor) -> int:
    return inputs.numel()


class _InterfacesResult(torch.nn.Module):
    """Only one of two submodules computes the number."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = _Kind(), _ComputedKind()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (
            _of_interface(self.one, inputs)
            + _of_interface(self.other, inputs)
            + self.one.cast(inputs, 6)
            + self.other.cast(inputs, 6)
        )


class _OtherInterfacesResult(_InterfacesResult):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = _ComputedKind(), _Kind()


class _FunctionsArgument(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return _cast(inputs, 6) + _cast(inputs, self.number)


def _cast(inputs: torch.Tensor, kind: int) -> torch.Tensor:
    return inputs.to(kind)


class _Optional(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softmax(inputs, 0, dtype=self.number)


class _InterfacesArgument(torch.nn.Module):
    """The method is also called by its own name, with a valid number."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = _Kind()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return _to_interface(self.kind, inputs) + self.kind.cast(inputs, 6)


class _CallersArgument(_Caster):
    """A method that is called from outside, too."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.cast(inputs, 6)


class _UncalledSubmodule(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = _Caster()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


class _Layout(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(inputs, layout=self.number)


class _Sparse(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.zeros([1], layout=torch.sparse_coo)


class _DataTypeAsLayout(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.zeros([1], layout=inputs.dtype)


class _MemoryFormat(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.clone(memory_format=self.number)


class _DeclaredAsInteger(_Holder):
    """`aten::to.prim_Device` declares the data type as an integer."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.to(inputs, inputs.device, self.chosen)


@pytest.mark.parametrize(
    ("module", "meaning"),
    [
        *(
            (module, "data type")
            for module in (
                _Constant, _Attribute, _Element, _ElementOfConstants, _Sum, _Data, _Conditional, _Loop, _LoopStart,
                _Iteration, _Result, _FunctionsResult, _InterfacesResult, _OtherInterfacesResult, _FunctionsArgument,
                _Optional, _InterfacesArgument, _CallersArgument, _UncalledSubmodule, _DeclaredAsInteger,
            )
        ),
        *((module, "layout") for module in (_Layout, _Sparse, _DataTypeAsLayout)),
        (_MemoryFormat, "memory format"),
    ],
)  # fmt: skip
def test_other_numbers_are_rejected(module: Callable[[], torch.nn.Module], meaning: str) -> None:
    with pytest.raises(UnsafePlan, match=rf"the plan's 'aten::\w+' has a {meaning} that is computed, or that no plan"):
        load(archive_of(module()))


class _Copy(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.to(None, False, True)


class _CopyToNoDevice(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.to(inputs, None, None, False, True)


class _CopyToOptionalDevice(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        device: torch.device | None = inputs.device
        if inputs.numel() == 3:
            device = None
        return torch.ops.aten.to(inputs, device, None, False, True)


class _CopyToOptionalType(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        kind: int | None = inputs.dtype
        if inputs.numel() == 3:
            kind = None
        return inputs.to(kind, False, True)


class _ComputedCopy(_Holder):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.to(None, False, inputs.numel() == 3)


@pytest.mark.parametrize("module", [_Copy, _CopyToNoDevice, _CopyToOptionalDevice, _CopyToOptionalType, _ComputedCopy])
def test_a_copy_without_device_and_data_type_is_rejected(module: Callable[[], torch.nn.Module]) -> None:
    """Torch reads a data type that nobody has set, and crashes or reports an error at random."""
    with refused(UnsafePlan, "device of operator", "aten::to"):
        load(archive_of(module()))


class _Autocast(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return inputs.matmul(inputs)


def autocasting(kind: int) -> bytes:
    """Return an archive whose class for autocasting needs no operator that plans may not use."""

    def change(records: dict[str, bytes]) -> dict[str, bytes]:
        name = next(name for name in records if name.endswith("autocast_mode.py"))
        code = records[name].decode()
        before, _, rest = code.partition("    if torch.__is__(dtype, None):")
        _, _, after = rest.partition("unchecked_cast(int, dtype)")
        return records | {name: f"{before}    _0 = unchecked_cast(int, dtype){after}".encode()}

    changed = rewritten(archive_of(_Autocast()), change)
    return with_code(changed, lambda code: code.replace('"cpu", 15', f'"cpu", {kind}'))


def test_casts_that_torch_inserts_before_it_runs_code_count() -> None:
    assert load(autocasting(15))(torch.ones(2, 2)).dtype == torch.bfloat16
    with refused(UnsafePlan, "data type of operator", "prim::SetAttr"):
        load(autocasting(INVALID))


def test_the_valid_numbers_are_torchs() -> None:
    types = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
             torch.float64, torch.bool, torch.bfloat16)  # fmt: skip
    formats = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
    assert {_number(each) for each in types} == VALID[SCALAR_TYPE]
    assert {_number(torch.strided)} == VALID[LAYOUT]
    assert {_number(each) for each in formats} == VALID[MEMORY_FORMAT]


def _number(value: object) -> int:
    """Return the number that compiled code has for a constant, such as `torch.uint8`."""
    name, position = {torch.dtype: ("dtype", 1), torch.layout: ("layout", 2)}.get(type(value), ("memory_format", 5))
    code = f"def made(inputs: Tensor) -> Tensor:\n  return torch.empty_like(inputs, {name}={value})\n"
    graph = torch.jit.CompilationUnit(code).made.graph
    return list(graph.findNode("aten::empty_like").inputs())[position].toIValue()
