"""A patch for programs in tests, see `forked_process`: torch is a later one, whose TorchScript raises."""

from __future__ import annotations

from typing import NoReturn
from unittest.mock import patch

import torch

from moonfed.plan import selection

NAMES = (
    *("torch.jit.load", "torch.jit.script", "torch.jit.trace", "torch.jit.freeze"),
    *("torch._C.import_ir_module", "torch._C.import_ir_module_from_buffer"),
)


def gone(*_: object, **__: object) -> NoReturn:
    """Raise as a torch without TorchScript would."""
    raise RuntimeError("TorchScript is not supported")


def trial() -> bool:
    """Try TorchScript here, where it is gone, instead of in a process that is not patched."""
    try:
        exec(selection.TRIAL, {})
    except RuntimeError:
        return False
    return True


for name in NAMES:
    patch(name, gone).start()
patch.object(selection, "TORCH_WITH", (2, 4)).start()
patch.object(selection, "_trial_succeeds", trial).start()
assert torch.jit.load is gone
