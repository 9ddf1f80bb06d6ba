"""Compilation of training plans to TorchScript archives without weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from moonfed.errors import InvalidInput, UnsafePlan
from moonfed.export.alternatives import PAGE, advice
from moonfed.export.archive import canonical_archive
from moonfed.export.augmentation import NoAugmentation
from moonfed.export.checked_layers import check_layers
from moonfed.export.criteria.classification import cross_entropy
from moonfed.export.criteria.criterion import Criterion
from moonfed.export.methods.method import Method
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.optimiser import Optimiser, Sgd
from moonfed.export.source_place import source_place
from moonfed.export.tensor_parts import TensorParts
from moonfed.export.training_plan import TrainingPlan
from moonfed.files import write_durably
from moonfed.plan.inspection.archive import named_operators
from moonfed.plan.inspection.functions import nodes
from moonfed.plan.inspection.operator_list import allowed_names
from moonfed.plan.interface import quiet_torchscript


def build_plan(
    network: Network,
    method: Method,
    hyperparameter_names: Iterable[str],
    *,
    criterion: Criterion | None = None,
    optimiser: Optimiser | None = None,
    augmentation: torch.nn.Module | None = None,
    parts: TensorParts | None = None,
) -> TrainingPlan:
    """Build a plan in eager PyTorch; the network is not modified.

    `criterion`: by default cross-entropy. `optimiser`: by default SGD. `augmentation`: raw samples to raw samples, like
    `NoAugmentation`. `parts`: of the network's tensors; by default, all are shared.
    """
    return TrainingPlan(
        check_layers(network),
        criterion or cross_entropy(),
        method,
        optimiser or Sgd(),
        hyperparameter_names,
        augmentation or NoAugmentation(),
        parts,
    )


def compile_plan(
    network: Network,
    method: Method,
    hyperparameter_names: Iterable[str],
    *,
    criterion: Criterion | None = None,
    optimiser: Optimiser | None = None,
    augmentation: torch.nn.Module | None = None,
    parts: TensorParts | None = None,
    model: str,
) -> torch.jit.ScriptModule:
    """Compile a plan, as `build_plan` builds it, to TorchScript, without weights; the network is not modified.

    `model`: its name for error messages. Raises InvalidInput if TorchScript cannot compile the network or the
    objective.
    """
    plan = build_plan(
        network,
        method,
        hyperparameter_names,
        criterion=criterion,
        optimiser=optimiser,
        augmentation=augmentation,
        parts=parts,
    )
    _drop_weights(plan)
    try:
        with quiet_torchscript():
            scripted: torch.jit.ScriptModule = torch.jit.script(plan)
    except Exception as error:  # user code may raise anything, and hooks of modules confuse the compiler
        culprit = f"objective is {_name(plan.objective)!r}" if _compiles(plan.network) else f"model is {model!r}"
        if isinstance(error, OSError):
            problem = "whose source TorchScript cannot read; define its classes in a notebook's cells or in a file"
        else:
            layers = {path: type(module).__name__ for path, module in plan.named_modules()}
            problem = f"which TorchScript cannot compile: {_reason(error)}{advice(layers)}"
        raise InvalidInput(f"{culprit}, {problem}") from error
    return scripted


def _compiles(module: torch.nn.Module) -> bool:
    try:
        with quiet_torchscript():
            torch.jit.script(module)
    except Exception:
        return False
    return True


def _name(part: object) -> str:
    return f"{type(part).__module__}.{type(part).__qualname__}"


def _reason(error: Exception) -> str:
    """Return the first line of a compiler's error, with the line of the source that it points at."""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    place = source_place(str(error))
    return f"{reason.rstrip(':.')} ({place})" if place else reason


def plan_bytes(scripted: torch.jit.ScriptModule) -> bytes:
    """Serialise plan.pt, independent of the machine that built it; InvalidInput if it calls Python."""
    try:
        with quiet_torchscript():
            content = scripted.save_to_buffer()
    except RuntimeError as error:
        reason = f"{_reason(error)}{advice(_layers(scripted))}"
        raise InvalidInput(f"the model or its objective cannot be saved in a plan: {reason}") from error
    return canonical_archive(content)


def require_allowed_operators(scripted: torch.jit.ScriptModule, content: bytes, model: str) -> None:
    """Raise UnsafePlan unless a plan may use all operators, naming the model and each refused operator with its place.

    `content`: the serialised plan.
    """
    try:
        named_operators(content)
    except UnsafePlan as error:
        places = _refused(scripted)
        if not places:
            raise
        listed = "; ".join(f"{name} ({place})" for name, (_, place) in sorted(places.items()))
        layers, refused = _layers(scripted), {path for path, _ in places.values()}
        instead = advice({path: layer for path, layer in layers.items() if path in refused}) or f"; see {PAGE}"
        raise UnsafePlan(
            field="model", value=model, rest=f", which uses operators that no plan may use: {listed}{instead}"
        ) from error


def _layers(scripted: torch.jit.ScriptModule) -> dict[str, str]:
    """Return the names of the modules' classes by their paths."""
    return {path: str(module.original_name) for path, module in scripted.named_modules()}


def _refused(scripted: torch.jit.ScriptModule) -> dict[str, tuple[str, str]]:
    """Return the operators that no plan may use, with the innermost module that calls each, and the place in words."""
    found: dict[str, tuple[str, str]] = {}
    for path, module in scripted.named_modules():  # outer modules come before their inner ones
        bindings: Any = module._c
        for method in bindings._method_names():
            for node in nodes(bindings._get_method(method).inlined_graph):
                operator = node.kind()
                if operator in allowed_names() or not path.startswith(found.get(operator, ("", ""))[0]):
                    continue
                line = source_place(node.sourceRange())
                place = f"{module.original_name} {path.partition('.')[2]!r}"
                found[operator] = path, f"{place}, {line}" if line else place
    return found


def save_plan(path: Path, scripted: torch.jit.ScriptModule) -> None:
    """Write plan.pt."""
    write_durably(path, plan_bytes(scripted))


def _drop_weights(plan: TrainingPlan) -> None:
    """Replace every exchanged tensor by one expanded zero; constants such as integer buffers keep their values."""
    for module in (plan.prefix, plan.network, plan.own, plan.encoders):
        for tensor in exchanged_tensors(module).values():
            tensor.data = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
