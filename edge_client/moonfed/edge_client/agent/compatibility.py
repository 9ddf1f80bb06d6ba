"""The device's description of itself, and the check that it can run a plan, without importing torch."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from moonfed.available_memory import ROOT
from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MANIFEST_BYTES, Manifest
from moonfed.edge_client.installed_packages import installed_packages
from moonfed.edge_client.resources.platform_info import cuda_of_torch, hardware
from moonfed.errors import UntrustedBundle, VersionMismatch
from moonfed.labels import INFERENCE_ONLY
from moonfed.plan.selection import choose_plan, runnable_interfaces
from moonfed.signing.bundle_signature import MAX_BYTES
from moonfed.version import GRAPH_PLAN_INTERFACE

REJECTED = "rejected until this device's software, data or trust file changes"  # in the log, before the reason


def torch_version() -> str:
    """Return the installed torch's version without importing it; empty if there is none."""
    return installed_packages().torch


def describe_platform(
    accelerator: str, threads: int | None = None, root: Path = ROOT, *, inference_only: bool = False
) -> dict[str, str]:
    """Describe this device for the coordinator's list of devices; omit what is unknown.

    `threads`: for training; None: torch's default, one per core unless the environment sets fewer.
    `inference_only`: whether it has no data. `root`: the root of the file system.
    """
    software = {
        "python": platform.python_version(),
        "torch": torch_version(),
        "cuda": cuda_of_torch(_torch_folder()),
        "accelerator": accelerator,
        "threads": str(threads or _usual_threads()),
        INFERENCE_ONLY: "yes" if inference_only else "",
    }
    return {**hardware(root), **{name: word for name, word in software.items() if word}}


def _torch_folder() -> Path:
    """Return the installed torch's folder without importing it."""
    return Path(installed_packages().torch_folder or "torch is not installed")


def _usual_threads() -> int:
    """Return torch's default number of threads without importing it.

    MKL, which most x86 builds of torch use, reads MKL_NUM_THREADS, then like OpenMP the first number of
    OMP_NUM_THREADS; both are capped at the number of cores.
    """
    cores = len(_cores())
    for variable in ("MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        first = os.environ.get(variable, "").split(",")[0].strip()
        if first.isascii() and first.isdigit() and int(first) > 0:
            return min(int(first), cores)
    return cores


def _cores() -> set[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))  # not Linux


def require_signature(signature: BlobRef | None, manifest: BlobRef) -> BlobRef:
    """Return the reference of a bundle's signature; raise UntrustedBundle if there is none, or a file is too large."""
    if signature is None:
        raise UntrustedBundle("the bundle is not signed", field="signature")
    if signature.size > MAX_BYTES:
        raise UntrustedBundle(f"the bundle's signature has {signature.size} bytes; it must be at most {MAX_BYTES}")
    if manifest.size > MANIFEST_BYTES:
        raise UntrustedBundle(f"the manifest has {manifest.size} bytes; it must be at most {MANIFEST_BYTES}")
    return signature


def plan_interfaces(plan_format: str) -> tuple[str, ...]:
    """Return the plan interfaces that this device runs, the preferred one first."""
    return runnable_interfaces(plan_format, torchscript=installed_packages().torchscript)


def require_runnable(manifest: Manifest, runnable: Sequence[str], required: str = "") -> str:
    """Return the interface by which this device runs the bundle's plan.

    Raises VersionMismatch, naming both versions, if it cannot. `required`: the interface that the run requires.
    """
    chosen = choose_plan(manifest, runnable, required)
    installed, plan = torch_version(), manifest.plan
    minimum = plan.graph_minimum_torch if chosen == GRAPH_PLAN_INTERFACE else plan.minimum_torch
    if _numbers(installed) < _numbers(minimum):
        raise VersionMismatch(
            f"the plan needs torch {minimum}; this device has {installed or 'none'}",
            field="torch",
            value=installed,
        )
    return chosen


def _numbers(version: str) -> tuple[int, ...]:
    """Return the major and minor number of a version such as 2.5.0a0+872d972e41.nv24.08."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
