"""Reading of a PyTorch file in the sandbox: unpickling runs what a file says, even with `weights_only`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from moonfed.errors import InvalidInput
from moonfed.sandbox.ipc import ParentPipe

FILE = "weights.pth"
WRAPPERS = ("state_dict", "model_state_dict", "model", "state_dict_ema")  # keys under which checkpoints hold one


def open_task(settings: dict[str, Any], _output: Path, _parent: ParentPipe) -> Callable[..., dict[str, Any]]:
    """Return the function that executes the command `convert`: to safetensors, in the descriptor `results`."""
    path, name = Path(settings["directory"], FILE), settings["name"]

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        content = save({key: tensor.contiguous().clone() for key, tensor in read_state_dict(path, name).items()})
        view = memoryview(content)
        while view:
            view = view[os.write(settings["results"], view) :]
        return {"kind": "converted"}

    return execute


def read_state_dict(path: Path, name: str) -> dict[str, torch.Tensor]:
    """Read the float tensors of a state dict; raise InvalidInput for a file that is damaged or holds anything else."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InvalidInput(
            field="weights", value=name, rest=", which holds Python objects, or is damaged; save its state_dict()"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError, OSError) as error:
        raise InvalidInput(field="weights", value=name, rest=", which is not a file that torch.save wrote") from error
    for key in WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
            break
    if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
        raise InvalidInput(
            field="weights", value=name, rest=f", which holds a {type(found).__name__}; save a model's state_dict()"
        )
    tensors = ((key, value) for key, value in found.items() if isinstance(value, torch.Tensor))
    return {key: tensor for key, tensor in tensors if tensor.is_floating_point()}
