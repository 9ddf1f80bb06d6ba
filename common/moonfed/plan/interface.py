"""The plan interface, torchscript/4: the calls that a device makes to a compiled plan (docs/plan-interface.md).

`Plan` is free of TorchScript's own types, so that other compiled formats can implement it.
Legend: B samples, D width of a representation, k previous models, R random draws per sample, K sums of a task.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Protocol

import torch

from moonfed.errors import InvalidInput, MoonfedError, TrainingFailed
from moonfed.plan.inspection.archive import read_plan
from moonfed.plan.inspection.operators import load_module
from moonfed.plan.inspection.torch_registry import require_operators

METHODS = (
    "begin_round",
    "draws_per_sample",
    "reference_count",
    "references",
    "step",
    "wants_survey",
    "survey",
    "end_round",
    "metrics",
    "evaluate",
    "metric",
    "predict",
    # for mixed precision: once after loading, then the two halves of `step`, of which only the first is in it
    "scale_losses",
    "outputs",
    "learn",
    "load_frozen",
)
PRECISIONS = ("float32", "bfloat16", "float16")
CONTIGUOUS, CHANNELS_LAST = MEMORY_FORMATS = ("contiguous", "channels-last")
WIDE = 64  # output channels of a convolution
# Lower than torch.amp.GradScaler's 2**16, which costs its first steps: the scale is reset in every round.
LOSS_SCALE = 2.0**12
Tensors = Sequence[torch.Tensor]
_UNKNOWN = re.compile(r"Unknown builtin op: (\w+::\w+)")
_RAISED = re.compile(r"[\w.]+(?:Error|Exception): (.+)")  # TorchScript's last line for an exception
_DEPRECATED = r"`torch\.jit\.\w+` is deprecated\. Please switch to (`torch\.compile` or )?`torch\.export`\."


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


class TorchScriptPlan:
    """A plan that is a TorchScript module on one device, in one precision.

    In mixed precision, the network's passes in `step` and `references` run under autocast; the loss, gradients of
    weights, the optimiser and every other method stay in float32.
    All tensors may come from any device; results stay on the plan's, except those of `end_round`, which are on the
    CPU, ready to be written. Every failure inside the script is a TrainingFailed.
    """

    def __init__(self, module: torch.jit.ScriptModule, device: torch.device, precision: str = "float32") -> None:
        """`precision`: of `step` and `references`; everything else is in float32."""
        self._module, self._device = module, device
        self._lower = None if precision == "float32" else getattr(torch, precision)

    def begin_round(
        self,
        model: Tensors,
        previous_models: Sequence[Tensors],
        received: Mapping[str, Tensors],
        hyperparameters: Mapping[str, float],
        steps: int = 1,
    ) -> None:
        """See `Plan`; also fails if a model's tensors or a hyperparameter do not match the plan's."""
        with _executing("begin a round"):
            self._module.begin_round(
                list(model),
                [list(previous) for previous in previous_models],
                {role: list(tensors) for role, tensors in received.items()},
                dict(hyperparameters),
                steps,
            )

    def draws_per_sample(self) -> int:
        """See `Plan`."""
        return int(self._module.draws_per_sample())

    def reference_count(self) -> int:
        """See `Plan`."""
        return int(self._module.reference_count())

    def references(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """See `Plan`."""
        with _executing("compute references"), self._autocast():
            result: torch.Tensor = self._module.references(inputs.to(self._device), draws.to(self._device))
        return result

    def step(
        self, inputs: torch.Tensor, targets: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> torch.Tensor:
        """See `Plan`."""
        device = self._device
        batch = [tensor.to(device) for tensor in (inputs, targets, references, draws)]
        with _executing("take a step"):
            if self._lower is None:
                loss: torch.Tensor = self._module.step(*batch)
            else:
                with self._autocast():
                    found = self._module.outputs(*batch)
                loss = self._module.learn(*found)
        return loss

    def _autocast(self) -> AbstractContextManager[object]:
        if self._lower is None:
            return nullcontext()
        # No cache of lowered weights: a step uses each of them once, and a CUDA graph must not refer to a cached one.
        return torch.autocast(self._device.type, self._lower, cache_enabled=False)

    def wants_survey(self, trained: bool) -> bool:
        """See `Plan`."""
        return bool(self._module.wants_survey(trained))

    def survey(self, inputs: torch.Tensor, targets: torch.Tensor, steps: int) -> None:
        """See `Plan`."""
        with _executing("survey the samples"):
            self._module.survey(inputs.to(self._device), targets.to(self._device), steps)

    def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
        """See `Plan`; the tensors are copies."""
        with _executing("end a round"):
            results: dict[str, list[torch.Tensor]] = self._module.end_round(steps)
        return {role: [tensor.cpu().contiguous() for tensor in tensors] for role, tensors in results.items()}

    def metrics(self) -> dict[str, float]:
        """See `Plan`."""
        with _executing("report its metrics"):
            return dict(self._module.metrics())

    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """See `Plan`."""
        with _executing("evaluate"):
            result: torch.Tensor = self._module.evaluate(inputs.to(self._device), targets.to(self._device))
        return result

    def metric(self, sums: torch.Tensor, samples: int) -> float:
        """See `Plan`."""
        with _executing("evaluate"):
            return float(self._module.metric(sums, samples))

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """See `Plan`."""
        with _executing("predict"):
            result: torch.Tensor = self._module.predict(inputs.to(self._device))
        return result


def default_memory_format(device: str, precision: str, shapes: Iterable[Sequence[int]]) -> str:
    """Return the fastest memory format for tensors of these shapes on a device in a precision.

    Measured: see "On CUDA" in docs/benchmarks.md. There, only wide convolutions gain from channels-last in float32.
    """
    narrow = all(len(shape) != 4 or shape[0] < WIDE for shape in shapes)
    return CONTIGUOUS if device.startswith("cuda") and precision == "float32" and narrow else CHANNELS_LAST


def load_plan(
    path: Path,
    device: str,
    *,
    precision: str = "float32",
    memory_format: str | None = None,
    frozen: Tensors | None = None,
) -> TorchScriptPlan:
    """Inspect a plan, load it onto `cpu` or `cuda`, allocate its tensors, and copy the frozen ones in.

    Raises UnsafePlan, before any code of the plan runs, if the inspection rejects it, VersionMismatch if this torch
    lacks one of its operators, and TrainingFailed if it cannot be loaded. `precision`: one of PRECISIONS; the lower two
    are mixed precision, in which weights stay float32. `memory_format`: one of MEMORY_FORMATS, by default
    `default_memory_format`. InvalidInput for another one. `frozen`: the frozen tensors in the manifest's
    order, without which a plan that has any begins no round.
    """
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
    try:
        with quiet_torchscript():
            module = load_module(read_plan(path), device)
    except MoonfedError:
        raise
    except Exception as error:  # torch has several kinds for a damaged or missing archive or device
        require_operators(_UNKNOWN.findall(str(error)))
        raise TrainingFailed(f"the plan {path} cannot be loaded on {device!r}: {_reason(error)}") from error
    missing = [method for method in METHODS if not hasattr(module, method)]
    if missing:
        raise TrainingFailed(
            f"{path} is a TorchScript archive but no plan: it has no method {missing[0]!r}",
            field="method",
            value=missing[0],
        )
    shapes = [parameter.shape for parameter in module.parameters()]
    try:
        allocate(module, memory_format or default_memory_format(device, precision, shapes))
    except RuntimeError as error:  # its tensors, of which the archive has a single element each, may have any size
        raise TrainingFailed(
            f"the tensors of the plan {path} cannot be allocated: {_reason(error)}", field="tensors"
        ) from error
    if precision == "float16":
        module.scale_losses(LOSS_SCALE)
    if frozen is not None:
        with _executing("load its frozen tensors"):
            module.load_frozen(list(frozen))
    return TorchScriptPlan(module, torch.device(device), precision)


def allocate(module: torch.nn.Module, memory_format: str = CONTIGUOUS) -> None:
    """Allocate every parameter and buffer, replacing the expanded zeros in the archive.

    The tensors stay the same objects, because the script's own lists refer to them. Those with four dimensions are the
    weights of convolutions: a memory format applies to them, and activations follow it.
    """
    for tensor in chain(module.parameters(), module.buffers()):
        last = memory_format == CHANNELS_LAST and tensor.dim() == 4
        layout = torch.channels_last if last else torch.contiguous_format
        tensor.data = tensor.detach().clone(memory_format=layout)


@contextmanager
def quiet_torchscript() -> Iterator[None]:
    """Silence only torch.jit's deprecation warnings: the plan interface is versioned for TorchScript's removal."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _DEPRECATED, DeprecationWarning)
        warnings.filterwarnings("ignore", _DEPRECATED, FutureWarning)  # torch 2.15's, which Python shows to users
        yield


@contextmanager
def _executing(action: str) -> Iterator[None]:
    """Run the script unoptimised; a failure inside raises TrainingFailed.

    The optimiser rewrites a script after its first calls, which changes rounding: the same round would differ in a
    process that has just started. It would be no faster, either.
    """
    try:
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            yield
    except Exception as error:  # torch has several kinds, one of them for a message that is not UTF-8
        raise TrainingFailed(f"the plan could not {action}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Extract the error's sentence from pages of TorchScript's source and advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [found[1] for line in lines if (found := _RAISED.match(line))]
    return (raised[-1:] or lines[:1] or [type(error).__name__])[0]
