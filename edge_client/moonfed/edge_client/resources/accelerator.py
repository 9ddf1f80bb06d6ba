"""Availability of the accelerator."""

from __future__ import annotations

from moonfed.errors import InvalidInput


def require_accelerator(name: str) -> None:
    """Raise InvalidInput if torch, which is imported only for `cuda`, cannot use the accelerator."""
    if name != "cuda":
        return
    import torch

    if not torch.cuda.is_available():
        raise InvalidInput("device is 'cuda', but torch finds no CUDA device here; use --device cpu")
