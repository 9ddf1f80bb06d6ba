"""Importing torchvision, and timm, which imports it, with a torch build that its compiled library does not match.

torchvision's wheels contain a compiled library for one build of torch. With another build, such as a CPU-only one, the
library does not load, and `import torchvision` fails with "operator torchvision::nms does not exist", because two of
its Python modules refer to operators of that library. No classifier uses them, so declaring them is enough.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import torch

from moonfed.errors import NotFound

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def import_torchvision() -> ModuleType:
    """Import torchvision; raise NotFound if it is not installed."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise NotFound(
            "this model needs torchvision, which is not installed; to keep this torch, run "
            f"pip install torchvision torch=={torch.__version__}"
        )
    if not _has_operators(Path(spec.origin).parent):
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", _SCHEMA)
    return importlib.import_module("torchvision")


def import_timm() -> ModuleType:
    """Import timm; raise NotFound if it or torchvision is not installed."""
    if importlib.util.find_spec("timm") is None:
        raise NotFound(
            "this model needs timm, which is not installed; to keep this torch, run "
            f"pip install timm torchvision torch=={torch.__version__}"
        )
    import_torchvision()
    return importlib.import_module("timm")


def _has_operators(package: Path) -> bool:
    """Try to load the library as torchvision does, and return whether the operators exist."""
    for library in package.glob("_C*.*"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    return hasattr(torch.ops.torchvision, "nms")
