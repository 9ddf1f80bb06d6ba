"""The plan interface, torchscript/4 and graph/1: plans that are loaded for a device (docs/plan-interface.md).

A plan is a TorchScript module, or graphs as data (`moonfed.plan.graph`); its file's name tells which.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import torch

from moonfed.bundle.manifest import GRAPH_PLAN_FILE
from moonfed.errors import MoonfedError, TrainingFailed
from moonfed.plan.graph.plan import load_graph_plan
from moonfed.plan.inspection.archive import read_plan
from moonfed.plan.inspection.operators import load_module
from moonfed.plan.inspection.torch_registry import require_operators
from moonfed.plan.protocol import (
    CHANNELS_LAST,
    CONTIGUOUS,
    LOSS_SCALE,
    MEMORY_FORMATS,
    PRECISIONS,
    Plan,
    Tensors,
    default_memory_format,
    failures_of,
    lower_precision,
    reason,
    require_loadable,
    unallocated,
)

__all__ = [
    "CHANNELS_LAST",
    "CONTIGUOUS",
    "LOSS_SCALE",
    "MEMORY_FORMATS",
    "METHODS",
    "PRECISIONS",
    "Plan",
    "Tensors",
    "TorchScriptPlan",
    "allocate",
    "default_memory_format",
    "load_plan",
    "load_torchscript_plan",
    "quiet_torchscript",
]
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
_UNKNOWN = re.compile(r"Unknown builtin op: (\w+::\w+)")
_DEPRECATED = r"`torch\.jit\.\w+` is deprecated\. Please switch to (`torch\.compile` or )?`torch\.export`\."


class TorchScriptPlan:
    """A plan that is a TorchScript module on one device, in one precision.

    In mixed precision, the network's passes in `step` and `references` run under autocast; the loss, gradients of
    weights, the optimiser and every other method stay in float32.
    All tensors may come from any device; results stay on the plan's, except those of `end_round`, which are on the
    CPU, ready to be written. Every failure inside the script is a TrainingFailed.
    """

    def __init__(self, module: torch.jit.ScriptModule, device: torch.device, precision: str = "float32") -> None:
        """`precision`: of `step` and `references`; everything else is in float32."""
        self._module, self._device, self._precision = module, device, precision

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
        with _executing("compute references"), lower_precision(self._device, self._precision):
            result: torch.Tensor = self._module.references(inputs.to(self._device), draws.to(self._device))
        return result

    def step(
        self, inputs: torch.Tensor, targets: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> torch.Tensor:
        """See `Plan`."""
        device = self._device
        batch = [tensor.to(device) for tensor in (inputs, targets, references, draws)]
        with _executing("take a step"):
            if self._precision == "float32":
                loss: torch.Tensor = self._module.step(*batch)
            else:
                with lower_precision(self._device, self._precision):
                    found = self._module.outputs(*batch)
                loss = self._module.learn(*found)
        return loss

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


def load_plan(
    path: Path,
    device: str,
    *,
    precision: str = "float32",
    memory_format: str | None = None,
    frozen: Tensors | None = None,
) -> Plan:
    """Inspect a plan, load it onto `cpu` or `cuda`, allocate its tensors, and copy the frozen ones in.

    Raises UnsafePlan, before any code of the plan runs, if the inspection rejects it, VersionMismatch if this torch
    lacks one of its operators, and TrainingFailed if it cannot be loaded. `precision`: one of PRECISIONS; the lower two
    are mixed precision, in which weights stay float32. `memory_format`: one of MEMORY_FORMATS, by default
    `default_memory_format`. InvalidInput for another one. `frozen`: the frozen tensors in the manifest's
    order, without which a plan that has any begins no round.
    """
    require_loadable(path, device, precision, memory_format)
    if path.name == GRAPH_PLAN_FILE:
        return load_graph_plan(path, device, precision=precision, memory_format=memory_format, frozen=frozen)
    return load_torchscript_plan(path, device, precision=precision, memory_format=memory_format, frozen=frozen)


def load_torchscript_plan(
    path: Path,
    device: str,
    *,
    precision: str = "float32",
    memory_format: str | None = None,
    frozen: Tensors | None = None,
) -> TorchScriptPlan:
    """Load a plan that is a TorchScript archive; see `load_plan`."""
    require_loadable(path, device, precision, memory_format)
    try:
        with quiet_torchscript():
            module = load_module(read_plan(path), device)
    except MoonfedError:
        raise
    except Exception as error:  # torch has several kinds for a damaged or missing archive or device
        require_operators(_UNKNOWN.findall(str(error)))
        raise TrainingFailed(f"the plan {path} cannot be loaded on {device!r}: {reason(error)}") from error
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
        raise unallocated(path, error) from error
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
    with failures_of(action), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        yield
