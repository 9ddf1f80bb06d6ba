"""Compilation of training plans to TorchScript archives without weights."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from pathlib import Path

import torch

from moonfed.errors import InvalidInput
from moonfed.export.archive import canonical_archive
from moonfed.export.augmentation import NoAugmentation
from moonfed.export.methods.method import Method, Objective
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.training_plan import TrainingPlan
from moonfed.files import write_durably
from moonfed.plan import quiet_torchscript

COMPILER_ERRORS = (torch.jit.frontend.FrontendError, RuntimeError, TypeError, ValueError)


def compile_plan(
    network: Network,
    method: Method,
    hyperparameter_names: Iterable[str],
    *,
    augmentation: torch.nn.Module | None = None,
    model: str,
) -> torch.jit.ScriptModule:
    """Compile a plan to TorchScript, without weights; the network is not modified.

    `augmentation`: raw samples to raw samples, like `NoAugmentation`. `model`: its name for error messages. Raises
    InvalidInput if TorchScript cannot compile the network or the objective, or if the objective has no loss.
    """
    plan = TrainingPlan(copy.deepcopy(network), method, hyperparameter_names, augmentation or NoAugmentation())
    if type(plan.objective).forward is Objective.forward:
        raise InvalidInput(f"objective is {_name(plan.objective)!r}, which lacks forward, the loss of a batch")
    _drop_weights(plan)
    try:
        with quiet_torchscript():
            scripted: torch.jit.ScriptModule = torch.jit.script(plan)
    except (OSError, *COMPILER_ERRORS) as error:
        culprit = f"objective is {_name(plan.objective)!r}" if _compiles(plan.network) else f"model is {model!r}"
        if isinstance(error, OSError):
            problem = "whose source TorchScript cannot read; define its classes in a notebook's cells or in a file"
        else:
            problem = f"which TorchScript cannot compile: {_reason(error)}"
        raise InvalidInput(f"{culprit}, {problem}") from error
    return scripted


def _compiles(module: torch.nn.Module) -> bool:
    try:
        with quiet_torchscript():
            torch.jit.script(module)
    except (OSError, *COMPILER_ERRORS):
        return False
    return True


def _name(part: object) -> str:
    return f"{type(part).__module__}.{type(part).__qualname__}"


def _reason(error: Exception) -> str:
    """Return the first line of a compiler's error, with the line of the source that it points at."""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    places = re.findall(r'File "(.+)", line (\d+)', str(error))
    return f"{reason.rstrip(':.')} ({places[0][0]}, line {places[0][1]})" if places else reason


def plan_bytes(scripted: torch.jit.ScriptModule) -> bytes:
    """Serialise plan.pt, independent of the machine that built it."""
    with quiet_torchscript():
        return canonical_archive(scripted.save_to_buffer())


def save_plan(path: Path, scripted: torch.jit.ScriptModule) -> None:
    """Write plan.pt."""
    write_durably(path, plan_bytes(scripted))


def _drop_weights(plan: TrainingPlan) -> None:
    """Replace every exchanged tensor by one expanded zero; constants such as integer buffers keep their values."""
    for module in (plan.network, plan.frozen):
        for tensor in exchanged_tensors(module).values():
            tensor.data = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
