"""Compilation of training plans to TorchScript archives without weights."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

import torch

from moonfed.errors import InvalidInput
from moonfed.export.archive import canonical_archive
from moonfed.export.augmentation import NoAugmentation
from moonfed.export.methods.method import Method
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.training_plan import TrainingPlan
from moonfed.files import write_durably
from moonfed.plan import quiet_torchscript


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
    InvalidInput if TorchScript cannot compile the network.
    """
    plan = TrainingPlan(copy.deepcopy(network), method, hyperparameter_names, augmentation or NoAugmentation())
    _drop_weights(plan)
    try:
        with quiet_torchscript():
            scripted: torch.jit.ScriptModule = torch.jit.script(plan)
    except OSError as error:
        raise InvalidInput(
            f"model is {model!r}, whose source TorchScript cannot read; define its classes in a notebook's cells or in "
            "a file"
        ) from error
    except (torch.jit.frontend.FrontendError, RuntimeError, TypeError, ValueError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InvalidInput(f"model is {model!r}, which TorchScript cannot compile: {reason}") from error
    return scripted


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
