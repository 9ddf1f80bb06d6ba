"""The calls that a device makes to a compiled plan (docs/plan-interface.md), whatever its format, and their failures.

Legend: B samples, D width of a representation, k previous models, R random draws per sample, K sums of a task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

import torch

from moonfed.errors import InvalidInput, TrainingFailed

PRECISIONS = ("float32", "bfloat16", "float16")
CONTIGUOUS, CHANNELS_LAST = MEMORY_FORMATS = ("contiguous", "channels-last")
WIDE = 64  # output channels of a convolution
# Lower than torch.amp.GradScaler's 2**16, which costs its first steps: the scale is reset in every round.
LOSS_SCALE = 2.0**12
Tensors = Sequence[torch.Tensor]
_RAISED = re.compile(r"[\w.]+(?:Error|Exception): (.+)")  # TorchScript's last line for an exception


class Plan(Protocol):
    """A compiled model and learning method, ready to train on one device."""

    def begin_round(
        self,
        model: Tensors,
        previous_models: Sequence[Tensors],
        received: Mapping[str, Tensors],
        hyperparameters: Mapping[str, float],
        steps: int = 1,
    ) -> None:
        """Start from the global model; momentum is zero. Tensors are in the manifest's order.

        `previous_models`: this device's previous local models, newest first; those beyond the method's k are ignored.
        `received`: the manifest's `downlink` and `device_state` by role; one that is absent counts as zeros, except
        `personal`, which is needed.
        `steps`: that the round is to take, which the learning rate may depend on.
        """

    def draws_per_sample(self) -> int:
        """Return R, the random numbers that augmenting one sample takes; 0 without augmentation."""

    def reference_count(self) -> int:
        """Return how many frozen results per sample `references` keeps: 0, if there is nothing to keep.

        They are representations, 1 + previous models, or the outputs of frozen first layers.
        """

    def references(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return the references of augmented inputs, from their frozen representations, [B, …].

        `draws` [B, R], uniform in [0, 1): the same draws augment a sample in the same way, always.
        """

    def step(
        self, inputs: torch.Tensor, targets: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> torch.Tensor:
        """Take one optimiser step on a batch; return the loss before it, a detached scalar on the device.

        `references`: of these inputs and draws; if it is empty, the step computes what it needs.
        """

    def wants_survey(self, trained: bool) -> bool:
        """Return whether `survey` is to see all samples once before the first step (False) or after the last (True)."""

    def survey(self, inputs: torch.Tensor, targets: torch.Tensor, steps: int) -> None:
        """Observe a batch in eval mode, without augmentation, for the results of `end_round` or `metrics`.

        `steps`: the number of steps that the round has taken so far. The device counts them, because a step that a CUDA
        graph replays does not pass through the script.
        """

    def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
        """Return the round's results by role: `model` and the manifest's `uplink` and `device_state`.

        `steps`: the number of steps that the round took.
        """

    def metrics(self) -> dict[str, float]:
        """Return the method's measurements in this round, by name."""

    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the task's sums [K] over a batch; the first is that of the loss."""

    def metric(self, sums: torch.Tensor, samples: int) -> float:
        """Return the task's metric from the sums [K] of all batches together, and their number of samples."""

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the bundle's ONNX graph returns, such as class probabilities [B, C]."""


def default_memory_format(device: str, precision: str, shapes: Iterable[Sequence[int]]) -> str:
    """Return the fastest memory format for tensors of these shapes on a device in a precision.

    Measured: see "On CUDA" in docs/benchmarks.md. There, only wide convolutions gain from channels-last in float32.
    """
    narrow = all(len(shape) != 4 or shape[0] < WIDE for shape in shapes)
    return CONTIGUOUS if device.startswith("cuda") and precision == "float32" and narrow else CHANNELS_LAST


def require_loadable(path: Path, device: str, precision: str, memory_format: str | None) -> None:
    """Raise InvalidInput for a precision or memory format that no plan has, TrainingFailed for a device not here."""
    chosen = memory_format or CONTIGUOUS
    for name, value, allowed in (("precision", precision, PRECISIONS), ("memory_format", chosen, MEMORY_FORMATS)):
        if value not in allowed:
            raise InvalidInput(field=name, value=value, allowed=f"one of {', '.join(allowed)}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise TrainingFailed(
            f"the plan {path} cannot be loaded on {device!r}: torch finds no CUDA device here",
            field="device",
            value=device,
        )


def lower_precision(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return the context in which a network's passes run in a precision."""
    if precision == "float32":
        return nullcontext()
    # No cache of lowered weights: a step uses each of them once, and a CUDA graph must not refer to a cached one.
    return torch.autocast(device.type, getattr(torch, precision), cache_enabled=False)


@contextmanager
def failures_of(action: str) -> Iterator[None]:
    """Raise TrainingFailed for a failure inside the plan."""
    try:
        yield
    except Exception as error:  # torch has several kinds, one of them for a message that is not UTF-8
        raise TrainingFailed(f"the plan could not {action}: {reason(error)}") from error


def unallocated(path: Path, error: Exception) -> TrainingFailed:
    """Return the error for tensors that exceed this machine's memory."""
    return TrainingFailed(f"the tensors of the plan {path} cannot be allocated: {reason(error)}", field="tensors")


def reason(error: BaseException) -> str:
    """Extract the error's sentence from pages of TorchScript's source and advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [found[1] for line in lines if (found := _RAISED.match(line))]
    return (raised[-1:] or lines[:1] or [type(error).__name__])[0]
