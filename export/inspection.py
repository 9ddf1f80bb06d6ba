"""Says what is in a bundle: a table for people, a document for scripts."""

from __future__ import annotations

import json
from typing import Any

from moonfed.bundle import Bundle
from moonfed.manifest import Manifest
from moonfed.tensors import TensorSpec, model_size

SHOWN_CLASSES = 10


def describe(bundle: Bundle) -> dict[str, Any]:
    """The manifest as a document, with the bundle's sha256 and the number of parameters."""
    document: dict[str, Any] = json.loads(bundle.manifest.to_bytes())
    return {"sha256": bundle.ref.sha256, "parameters": model_size(_of_kind(bundle.manifest, "parameter")), **document}


def table(bundle: Bundle) -> str:
    """Lines of a name and a value."""
    manifest = bundle.manifest
    parameters, statistics = _of_kind(manifest, "parameter"), _of_kind(manifest, "statistic")
    rows = [
        ("name", manifest.name),
        ("sha256", bundle.ref.sha256),
        ("model", f"{manifest.model}, {model_size(parameters):,} parameters in {len(parameters)} tensors"),
        ("statistics", f"{model_size(statistics):,} in {len(statistics)} tensors" if statistics else "none"),
        ("method", _method(manifest)),
        *(("", f"{name} = {value:g}") for name, value in sorted(manifest.hyperparameters.items())),
        ("training", f"{manifest.training.epochs} epochs a round, batches of {manifest.training.batch_size}"),
        ("input", f"{manifest.input.kind}, {manifest.input.dtype} {_shape(manifest.input.shape)}"),
        ("classes", _classes(manifest.classes)),
        ("plan", f"{manifest.plan.interface}, built with torch {manifest.plan.built_with_torch}, "
                 f"for torch {manifest.plan.minimum_torch} or later"),
        ("samples", f"at least {manifest.plan.minimum_samples} on a device"),
        *((name, f"{ref.size:,} bytes, sha256 {ref.sha256[:12]}") for name, ref in sorted(manifest.files.items())),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _method(manifest: Manifest) -> str:
    if manifest.previous_models:
        return f"{manifest.method} with up to {manifest.previous_models} previous models"
    return manifest.method


def _classes(classes: tuple[str, ...]) -> str:
    shown = ", ".join(classes[:SHOWN_CLASSES])
    return f"{len(classes)}: {shown}{', …' if len(classes) > SHOWN_CLASSES else ''}"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape)


def _of_kind(manifest: Manifest, kind: str) -> list[TensorSpec]:
    return [tensor for tensor in manifest.tensors if tensor.kind == kind]
