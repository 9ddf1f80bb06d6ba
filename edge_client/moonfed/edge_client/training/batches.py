"""Batches of samples, draws and references, in buffers that stay at the same addresses.

Legend: N samples, B a batch's samples, R random draws per sample, j available previous models, D width of a
representation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from moonfed.edge_client.training.data_placement import Memory, Placement, Samples, expected
from moonfed.edge_client.training.rng import RoundSettings, sample_draws, steps_in_round, steps_per_epoch
from moonfed.edge_client.training.row_gather import FetchedRows, ResidentRows, uploaded
from moonfed.plan.interface import Plan


class Batch(NamedTuple):
    """A step's arguments in their order: buffers on the accelerator, which the next batch overwrites."""

    inputs: torch.Tensor
    targets: torch.Tensor
    references: torch.Tensor
    draws: torch.Tensor


class BatchFeed:
    """The batches of one round."""

    def __init__(
        self,
        plan: Plan,
        data: Samples,
        settings: RoundSettings,
        device: torch.device,
        memory: Memory,
        heartbeat: Callable[[], None],
        in_time: Callable[[], bool] = lambda: True,
    ) -> None:
        """`memory`: free memory before the data were placed. `heartbeat` is called after every unit of work.

        `in_time`: whether the round has seconds left; references are not computed beyond them.
        """
        self._data, self._device = data, device
        self._copies = _AugmentedCopies(plan, data, settings, device, memory, heartbeat, in_time)
        self._gathers = [(ResidentRows(device), FetchedRows(device)) for _ in range(1 if data.rows is None else 2)]
        self._ahead: Iterator[torch.Tensor] = iter(())
        self._batch: Batch | None = None

    @property
    def batch(self) -> Batch:
        """The buffers: the same ones from the beginning of the first epoch to the end of the round."""
        assert self._batch is not None  # noqa: S101 - an epoch has begun
        return self._batch

    def begin(self, epoch: int, batches: torch.Tensor) -> None:
        """Begin an epoch, counted from 1, of batches [steps, B] on the CPU; may compute references first."""
        draws, references = self._copies.of(epoch)
        sources = Batch(inputs=self._data.inputs, targets=self._data.targets, references=references, draws=draws)
        if self._batch is None:
            width = batches.shape[1]
            self._batch = Batch(*(s.new_empty((width, *s.shape[1:]), device=self._device) for s in sources))
        pairs, rows = list(zip(sources, self._batch, strict=True)), self._data.rows
        parts = [(pairs, batches)] if rows is None else [(pairs[:2], rows[batches]), (pairs[2:], batches)]
        for (resident, fetched), (some, positions) in zip(self._gathers, parts, strict=True):
            filled = [(source, buffer) for source, buffer in some if buffer.numel()]
            resident.begin([pair for pair in filled if pair[0].device == pair[1].device], positions)
            fetched.begin([pair for pair in filled if pair[0].device != pair[1].device], positions)
        if self._data.expect:
            self._ahead = expected(parts[0][1].unbind(0), self._data.expect)

    def fill(self) -> None:
        """Copy the epoch's next batch into the buffers."""
        next(self._ahead, None)
        for resident, fetched in self._gathers:
            resident.fill()
            fetched.fill()


class _AugmentedCopies:
    """The round's augmented copies of the data, each as its draws [N, R] and references [N, …].

    A copy that recurs in a later epoch (all data without augmentation, else a view) is kept after its first use, with
    its references, which are frozen. The step itself computes the references of a fresh copy, which it augments anyway;
    it computes all references in a round whose steps would use each at most once.
    """

    def __init__(
        self,
        plan: Plan,
        data: Samples,
        settings: RoundSettings,
        device: torch.device,
        memory: Memory,
        heartbeat: Callable[[], None],
        in_time: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._data = data
        self._settings = settings
        self._device = device
        self._heartbeat = heartbeat
        self._memory, self._in_time = memory, in_time
        self._per_sample = plan.draws_per_sample()
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        samples, batch_size = len(data), settings.training.batch_size
        steps = steps_in_round(samples, settings)
        epochs = -(-steps // steps_per_epoch(samples, batch_size))
        self._count = min(epochs, settings.training.views) if self._per_sample else 1  # copies that the round uses
        self._come_back = steps * min(batch_size, samples) > self._count * samples

    def of(self, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an epoch's draws and references; references are empty if the step computes them."""
        if self._per_sample and not self._settings.training.views:
            return self._draws(epoch), torch.empty(len(self._data), 0)
        view = (epoch - 1) % self._settings.training.views if self._per_sample else 0
        if view not in self._kept:
            draws = self._draws(view)
            self._kept[view] = draws, self._references(draws)
        return self._kept[view]

    def _references(self, draws: torch.Tensor) -> torch.Tensor:
        if not self._come_back:
            return torch.empty(len(self._data), 0)
        size = self._settings.training.batch_size
        return compute_references(self._plan, self._data, draws, size, self._heartbeat, self._home, self._in_time)

    def _draws(self, number: int) -> torch.Tensor:
        draws = sample_draws(len(self._data), self._per_sample, self._settings, number)
        return uploaded(draws, self._device)

    def _home(self, size: int) -> torch.device | None:
        """Return the device for references of `size` bytes per view; None leaves them to the step."""
        place = self._memory.place(self._count * size, self._data.bytes_on(self._device))
        return {Placement.ACCELERATOR: self._device, Placement.HOST: torch.device("cpu"), Placement.STEP: None}[place]


def compute_references(
    plan: Plan,
    data: Samples,
    draws: torch.Tensor,
    batch_size: int,
    heartbeat: Callable[[], None] = lambda: None,
    home: Callable[[int], torch.device | None] = lambda _: torch.device("cpu"),
    in_time: Callable[[], bool] = lambda: True,
) -> torch.Tensor:
    """Return all samples' references [N, …]; [N, 0] if the objective needs none or they do not fit.

    `home`: the device for references of a given size in bytes, or None. `in_time`: whether time is left; [N, 0] if it
    runs out.
    """
    kept = nothing = torch.empty(len(data), 0)
    if plan.reference_count() == 0:
        return nothing
    for start, (inputs, _) in zip(range(0, len(data), batch_size), data.batches(batch_size), strict=True):
        rows = slice(start, start + batch_size)
        with torch.no_grad():
            found = plan.references(inputs, draws[rows])
        if start == 0:
            device = home(len(data) * found[0].nbytes)
            if device is None:
                break
            kept = found.new_empty((len(data), *found.shape[1:]), device=device)
        kept[rows] = found
        heartbeat()
        if not in_time():
            return nothing
    return kept
