"""Placement of a round's data: on the accelerator if they fit in half of its free memory, else in host memory.

References that exceed half of the free host memory too are computed by each step. Decided once per round, by size only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from moonfed.available_memory import ROOT, held_memory, host_available
from moonfed.edge_client.resources.placement import Memory as Memory
from moonfed.edge_client.resources.placement import Placement as Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw inputs [N, …] and targets [N, …]; in host memory, unless a `DataPlacement` has moved them."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    def to(self, device: str | torch.device) -> Samples:
        """Return the samples moved to `cpu` or `cuda`."""
        return Samples(inputs=self.inputs.to(device), targets=self.targets.to(device))

    @property
    def device(self) -> torch.device:
        """Location of the samples."""
        return self.targets.device

    def bytes_on(self, device: torch.device) -> int:
        """Return the bytes that the samples take of a device's memory."""
        return self.inputs.nbytes + self.targets.nbytes if self.device.type == device.type else 0


def free_memory(device: torch.device, held: int = 0) -> Memory:
    """Return the free memory; `held`: bytes of the accelerator that the round's own data occupy."""
    if device.type != "cuda":
        return Memory(host=_host_memory())
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # kept by torch for its tensors
    return Memory(host=_host_memory(), accelerator=free + unused + held)


def _host_memory() -> int | None:
    available = host_available()
    return None if available is None else max(0, available - held_memory(ROOT, "RssAnon"))


class DataPlacement:
    """Keeps samples on the accelerator from round to round if they fit."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._source: Samples | None = None
        self._moved: Samples | None = None

    def place(self, data: Samples) -> Samples:
        """Return the samples, moved if they fit; `data` must be the same object while they are unchanged."""
        if self._moved is not None and self._source is data:
            return self._moved
        self._source = self._moved = None  # never both the old and the new at once
        size = data.bytes_on(data.device)
        if self._device.type == "cpu" or free_memory(self._device).place(size) is not Placement.ACCELERATOR:
            return data
        self._source, self._moved = data, data.to(self._device)
        return self._moved
