"""Plans that an attacker would send: TorchScript archives that do something no plan may do."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping

import torch

from moonfed.plan.interface import quiet_torchscript


class _FromFile(torch.nn.Module):
    def forward(self, size: int) -> torch.Tensor:
        return torch.from_file("/etc/hostname", False, size, dtype=torch.uint8)


class _WriteFile(torch.nn.Module):
    def forward(self, size: int) -> torch.Tensor:
        return torch.from_file("queue.py", True, size, dtype=torch.uint8)


class _Save(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> None:
        torch.save(inputs, "queue.py")


class _AsStrided(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(inputs, [1000], [1], 0)


class _Reinterpret(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.ops.inductor._reinterpret_tensor(inputs, [1000], [1], 0)  # type: ignore[no-any-return]


class _Fused(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.zeros(1)]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.kept = [inputs]  # torch would remove a call whose result nothing uses
        torch.ops.aten._fused_sgd_(
            self.kept,
            [torch.zeros([1])],
            [],
            weight_decay=0.0,
            momentum=0.0,
            lr=1.0,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )
        return inputs


class _Median(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.median(inputs, 0)[0]


class _Print(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        print("run tested, round 1: submitted")
        return inputs


class _OnLoad(torch.nn.Module):
    """Runs when it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.value = torch.zeros(1)

    @torch.jit.export
    def __getstate__(self) -> tuple[torch.Tensor, bool]:
        return self.value, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]) -> None:
        self.value = torch.from_file("/etc/hostname", False, 1, dtype=torch.uint8)
        self.training = state[1]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


class _SortFloats(torch.nn.Module):
    """Reads and writes beyond a list, because nothing is sorted after NaN or before it."""

    def forward(self, inputs: torch.Tensor) -> list[float]:
        values = [float("nan")] * 100
        values.sort(reverse=True)
        return values


@torch.jit.script
class _Below:
    def __init__(self, number: int) -> None:
        self.number = number

    def __lt__(self, other: _Below) -> bool:
        return True


class _SortObjects(torch.nn.Module):
    """Reads and writes beyond a list, because each object claims to be less than the others."""

    def forward(self, inputs: torch.Tensor) -> int:
        values = [_Below(number) for number in range(100)]
        values.sort()
        return len(values)


class Harmless(torch.nn.Module):
    """Does nothing that a plan may not."""

    def forward(self, inputs: torch.Tensor, scale: float = 1.5) -> torch.Tensor:
        return inputs.relu() * scale


def archive_of(module: torch.nn.Module) -> bytes:
    """Compile and save a module."""
    with quiet_torchscript():
        content: bytes = torch.jit.script(module).save_to_buffer()  # type: ignore[no-untyped-call]
    return without_debug(content)


def without_debug(content: bytes) -> bytes:
    """Drop the records that moonfed's own plans do not have."""
    return rewritten(content, lambda records: records)


def rewritten(
    content: bytes, change: Callable[[dict[str, bytes]], Mapping[str, bytes]], compression: int = zipfile.ZIP_STORED
) -> bytes:
    """Return an archive with changed records; debug records are dropped."""
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        records = {
            name: source.read(name)
            for name in source.namelist()
            if not name.endswith((".debug_pkl", ".data/serialization_id"))
        }
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", compression) as target:
        for name, record in change(records).items():
            target.writestr(name, record)
    return output.getvalue()


def with_code(content: bytes, change: Callable[[str], str]) -> bytes:
    """Return an archive whose main code file is changed."""

    def changed(records: dict[str, bytes]) -> dict[str, bytes]:
        name = next(name for name in records if name.endswith(".py") and b"def forward" in records[name])
        return records | {name: change(records[name].decode()).encode()}

    return rewritten(content, changed)


FORBIDDEN_OPERATORS: Mapping[str, Callable[[], torch.nn.Module]] = {
    "aten::from_file": _FromFile,
    "aten::from_file (writing)": _WriteFile,
    "aten::save": _Save,
    "aten::as_strided": _AsStrided,
    "inductor::_reinterpret_tensor": _Reinterpret,
    "prim::Print": _Print,
    "aten::_fused_sgd_": _Fused,
    "aten::median.dim": _Median,
    "aten::sort.float": _SortFloats,
    "aten::sort.any": _SortObjects,
}


def on_load() -> bytes:
    """Return an archive with `__setstate__` and `__getstate__`."""
    return archive_of(_OnLoad())
