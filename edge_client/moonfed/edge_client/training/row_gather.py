"""Gathering of batches' rows into buffers at fixed addresses, because a CUDA graph reads them there.

A *source* is a tensor of all samples [N, …]; its *buffer* [B, …] is on the device of the steps and holds the current
batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:  # not every torch from 2.4 on has those of a CPU
    Stream = torch.cuda.Stream | torch.cpu.Stream
    Event = torch.cuda.Event | torch.cpu.Event
Pair = tuple[torch.Tensor, torch.Tensor]  # a source and its buffer


class ResidentRows:
    """Rows of sources on the device of the steps: one gather each."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pairs: Sequence[Pair] = ()
        self._batches: Iterator[torch.Tensor] = iter(())

    def begin(self, pairs: Sequence[Pair], batches: torch.Tensor) -> None:
        """Begin an epoch; `batches`: the rows' indices [steps, B], on the CPU, which are copied at once."""
        self._pairs = pairs
        self._batches = iter(uploaded(batches, self._device).unbind(0) if pairs else ())

    def fill(self) -> None:
        """Put the next batch into the buffers."""
        if self._pairs:
            index = next(self._batches)
            for source, buffer in self._pairs:
                torch.index_select(source, 0, index, out=buffer)


class FetchedRows:
    """Rows of sources in host memory: through pinned memory, on a separate stream, one batch ahead.

    Two slots take turns, so the host runs at most two batches ahead of the accelerator.
    """

    def __init__(self, device: torch.device) -> None:
        # On a CPU, where only tests have a use for this, streams and events do nothing.
        self._api = torch.cuda if device.type == "cuda" else torch.cpu
        self._pairs: Sequence[Pair] = ()
        self._slots: tuple[_Slot, ...] = ()
        self._ahead: Iterator[_Slot] = iter(())

    def begin(self, pairs: Sequence[Pair], batches: torch.Tensor) -> None:
        """Begin an epoch; `batches`: the rows' indices [steps, B], on the CPU."""
        self._pairs = pairs
        if not pairs:
            return
        if not self._slots:
            self._stream = self._api.Stream()
            self._slots = tuple(_Slot([buffer for _, buffer in pairs], self._stream, self._api.Event) for _ in range(2))
        self._stream.wait_stream(self._api.current_stream())
        self._ahead = self._fetch_all([source for source, _ in pairs], batches.unbind(0))

    def fill(self) -> None:
        """Put the next batch into the buffers, and start fetching the one after it."""
        if not self._pairs:
            return
        slot, stream = next(self._ahead), self._api.current_stream()
        stream.wait_event(slot.fetched)
        for (_, buffer), arrived in zip(self._pairs, slot.arrived, strict=True):
            buffer.copy_(arrived, non_blocking=True)
        slot.used.record(stream)

    def _fetch_all(self, sources: Sequence[torch.Tensor], batches: Sequence[torch.Tensor]) -> Iterator[_Slot]:
        """Yield each batch's slot in turn, with the next batch in flight."""
        self._fetch(self._slots[0], sources, batches[0])
        for number in range(len(batches)):
            if number + 1 < len(batches):
                self._fetch(self._slots[(number + 1) % 2], sources, batches[number + 1])
            yield self._slots[number % 2]

    def _fetch(self, slot: _Slot, sources: Sequence[torch.Tensor], index: torch.Tensor) -> None:
        slot.fetched.synchronize()  # the previous transfer from this pinned memory is complete
        with self._api.stream(self._stream):
            self._stream.wait_event(slot.used)
            for source, pinned, arrived in zip(sources, slot.pinned, slot.arrived, strict=True):
                torch.index_select(source, 0, index, out=pinned)
                arrived.copy_(pinned, non_blocking=True)
            slot.fetched.record(self._stream)


class _Slot:
    """One batch on its way: in pinned host memory, then on the accelerator."""

    def __init__(self, buffers: Sequence[torch.Tensor], stream: Stream, event: type[Event]) -> None:
        self.pinned = [torch.empty(b.shape, dtype=b.dtype, pin_memory=b.is_cuda) for b in buffers]
        self.arrived = [torch.empty_like(buffer) for buffer in buffers]
        self.fetched, self.used = event(), event()
        for tensor in self.arrived:
            if isinstance(stream, torch.cuda.Stream):
                tensor.record_stream(stream)  # a round that ends early may leave a copy in flight


def uploaded(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a host tensor to the device without waiting for the accelerator."""
    if device.type != "cuda" or not tensor.numel():
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
