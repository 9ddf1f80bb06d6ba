"""Imports torchvision beside a torch that its compiled part was not built for.

torchvision's wheels carry a compiled library for one build of torch. Beside another build, such as a CPU one, that
library does not load, and `import torchvision` fails with "operator torchvision::nms does not exist", because two of
its Python modules describe operators that the library should have brought. No classifier uses those operators, so it
is enough to declare them.
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
    """The torchvision package; NotFound if it is not installed."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise NotFound("this model needs torchvision, which is not installed")
    if not _has_operators(Path(spec.origin).parent):
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", _SCHEMA)
    return importlib.import_module("torchvision")


def _has_operators(package: Path) -> bool:
    """Whether the operators are there, after trying to load the library as torchvision itself does."""
    for library in package.glob("_C*.*"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    return hasattr(torch.ops.torchvision, "nms")
