"""Rounds of plans in lower precision, and the distance of their updates."""

from __future__ import annotations

from pathlib import Path

import torch

from moonfed.export.methods import METHODS
from moonfed.export.network import Network, exchanged_tensors
from moonfed.plan.interface import quiet_torchscript
from tests.export.conftest import hyperparameters
from tests.support.plan_rounds import Round


def values(method: str) -> dict[str, float]:
    """Train at a rate so small that a ResNet on batches of eight is not chaotic, so rounding does not dominate."""
    return hyperparameters(**METHODS[method]().hyperparameters()) | {"learning_rate": 0.0003}


def update_of(found: Round, network: Network) -> torch.Tensor:
    """Return the change of the trained parameters as one vector."""
    tensors = zip(found.model, exchanged_tensors(network).values(), strict=True)
    return torch.cat([(after - before.detach()).flatten() for after, before in tensors if before.requires_grad])


def opened(directory: Path, device: str) -> torch.jit.ScriptModule:
    """Load the archive without `load_plan`'s changes."""
    with quiet_torchscript():
        module: torch.jit.ScriptModule = torch.jit.load(  # type: ignore[no-untyped-call]
            str(directory / "plan.pt"), map_location=device
        )
    return module
