"""Placement of a round's data: on the accelerator if they fit in half of its free memory, else in host memory.

References that exceed half of the free host memory too are computed by each step. Decided once per round, by size only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from moonfed.available_memory import ROOT, held_memory, host_available
from moonfed.edge_client.resources.placement import Memory as Memory
from moonfed.edge_client.resources.placement import Placement as Placement

MOVED = 256  # samples that are moved at a time from mapped files


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw inputs [N, …] and targets [N, …]; in host memory, unless a `DataPlacement` has moved them.

    With `rows`, both are those of all samples, of which N count. They may be mapped files then, which must not be
    written to, and whose pages the kernel reads when they are needed.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    rows: torch.Tensor | None = None  # N, int64
    expect: Callable[[torch.Tensor], None] | None = None  # is told which rows are needed next

    def __len__(self) -> int:
        return int((self.targets if self.rows is None else self.rows).shape[0])

    def batches(self, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield inputs and targets in order, in parts of this size."""
        if self.rows is None:
            yield from zip(torch.split(self.inputs, size), torch.split(self.targets, size), strict=True)
            return
        for rows in expected(torch.split(self.rows, size), self.expect):
            yield self.inputs.index_select(0, rows), self.targets.index_select(0, rows)

    def to(self, device: str | torch.device) -> Samples:
        """Return the samples moved to `cpu` or `cuda`."""
        if self.rows is None:
            return Samples(inputs=self.inputs.to(device), targets=self.targets.to(device))
        inputs, targets = (
            torch.empty((len(self), *part.shape[1:]), dtype=part.dtype, device=device)
            for part in (self.inputs, self.targets)
        )
        start = 0
        for some, known in self.batches(MOVED):
            inputs[start : start + len(known)] = some
            targets[start : start + len(known)] = known
            start += len(known)
        return Samples(inputs=inputs, targets=targets)

    @property
    def device(self) -> torch.device:
        """Location of the samples."""
        return self.targets.device

    def bytes_on(self, device: torch.device) -> int:
        """Return the bytes that the samples take of a device's memory."""
        return self.nbytes if self.rows is None and self.device.type == device.type else 0

    @property
    def nbytes(self) -> int:
        """The bytes of the samples, wherever they are."""
        return len(self) * (self.inputs[:1].nbytes + self.targets[:1].nbytes)


def expected(batches: Sequence[torch.Tensor], expect: Callable[[torch.Tensor], None] | None) -> Iterator[torch.Tensor]:
    """Yield batches of rows; `expect` is told those of the next one before."""
    for number, batch in enumerate(batches):
        if expect:
            for ahead in batches[number + 1 : number + 2] if number else batches[:2]:
                expect(ahead)
        yield batch


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
        size = data.nbytes
        if self._device.type == "cpu" or free_memory(self._device).place(size) is not Placement.ACCELERATOR:
            return data
        self._source, self._moved = data, data.to(self._device)
        return self._moved
