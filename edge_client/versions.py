"""Whether this device can run a plan, and what it tells the coordinator about itself; torch is not imported for it."""

from __future__ import annotations

import importlib.metadata
import platform

from moonfed import PLAN_INTERFACE
from moonfed.errors import VersionMismatch
from moonfed.manifest import Manifest


def torch_version() -> str:
    """Of the installed torch, without importing it; empty if there is none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def describe_platform(accelerator: str) -> dict[str, str]:
    """What a coordinator's list of devices shows."""
    return {
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "torch": torch_version(),
        "accelerator": accelerator,
    }


def require_runnable(manifest: Manifest) -> None:
    """Raises VersionMismatch, naming both versions, if this device cannot run the bundle's plan."""
    if manifest.plan.interface != PLAN_INTERFACE:
        raise VersionMismatch(f"the plan's interface is {manifest.plan.interface}; this device runs {PLAN_INTERFACE}")
    installed = torch_version()
    if _numbers(installed) < _numbers(manifest.plan.minimum_torch):
        raise VersionMismatch(f"the plan needs torch {manifest.plan.minimum_torch}; this device has {installed}")


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor of a version such as 2.5.0a0+872d972e41.nv24.08."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
