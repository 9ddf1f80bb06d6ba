"""The inspection of plans, and torch's loader behind it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from functools import cache

import torch

from moonfed.errors import TrainingFailed
from moonfed.plan.inspection.archive import inspect_archive
from moonfed.plan.interface import load_plan
from tests.fuzzing import scratch
from tests.fuzzing.decoder import Decoder
from tests.support import attack_plans


class _Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.scale, self.shape = 0.5, (2, -3)

    def forward(self, inputs: torch.Tensor, scale: float = 1.5, size: list[int] | None = None) -> torch.Tensor:
        result: torch.Tensor = self.linear(inputs) - self.mean
        if size is not None:
            result = result.reshape(size)
        return result * self.scale * scale


class Constructs(torch.nn.Module):
    """A module with one of each construct that a plan contains."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = _Inner()
        self.layers = torch.nn.ModuleList([torch.nn.ReLU()])
        self.names = {"loss": 0.0}
        self.pair = (1, [2.0])

    def forward(self, inputs: torch.Tensor, count: int = 2, mode: str = "mean") -> tuple[torch.Tensor, list[int]]:
        found: list[int] = []
        with torch.no_grad():
            result = inputs.relu()
        for step in range(count):
            if step % 2 == 0 and inputs.numel() > 0:
                result = result + torch.ones_like(result)
            found.append(step)
        while len(found) > 9:
            found.pop()
        if "loss" not in self.names:
            raise ValueError("no \"loss\" \\ 'here'")
        self.names["loss"] += float(self.pair[0])
        return self.inner(result), found


@cache
def _archives() -> tuple[bytes, ...]:
    return tuple(attack_plans.archive_of(module) for module in (attack_plans.Harmless(), Constructs()))


def _records(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        return {name: source.read(name) for name in source.namelist()}


def _load(archive: bytes) -> None:
    """Load a plan; missing methods do not matter here."""
    try:
        load_plan(scratch.file(archive, "plan.pt"), "cpu")
    except TrainingFailed as error:
        if "but no plan" not in str(error):
            raise


def _main(records: dict[str, bytes]) -> str:
    return next(name for name in records if name.endswith(".py") and b"def forward" in records[name])


def _pickle(records: dict[str, bytes]) -> str:
    return next(name for name in records if name.endswith("/data.pkl"))


def _load_code(content: bytes) -> None:
    """Load a plan whose main code file is the input."""
    _load(attack_plans.rewritten(_archives()[1], lambda records: records | {_main(records): content}))


def _load_pickle(content: bytes) -> None:
    """Load a plan whose main pickle is the input."""
    _load(attack_plans.rewritten(_archives()[1], lambda records: records | {_pickle(records): content}))


def _seed_of(name: Callable[[dict[str, bytes]], str]) -> list[bytes]:
    records = _records(_archives()[1])
    return [records[name(records)]]


PLAN_DECODERS = (
    Decoder(name="plan_archive", read=inspect_archive, seeds=lambda: _archives(), largest=16384),
    Decoder(name="plan_code", read=_load_code, seeds=lambda: _seed_of(_main)),
    Decoder(name="plan_pickle", read=_load_pickle, seeds=lambda: _seed_of(_pickle)),
)
