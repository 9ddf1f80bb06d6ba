"""Binds a model's tensors into a bundle's ONNX graph, and says in the file where they come from. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from moonfed import RELEASE
from moonfed.errors import SchemaMismatch
from moonfed.manifest import Manifest
from moonfed.tensors import Vector, open_model, split

PREFIX = "moonfed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a model comes from."""

    run: str
    round: int  # 0: the weights that the run started from
    manifest: str  # sha256
    model: str  # sha256


def bind_file(template: bytes, model: Path, manifest: Manifest, origin: Origin | None = None) -> bytes:
    """`bind` for a model file; raises SchemaMismatch if its tensors are not the manifest's."""
    return bind(template, open_model(model, manifest.tensors), manifest, origin)


def bind(template: bytes, model: Vector, manifest: Manifest, origin: Origin | None = None) -> bytes:
    """The graph with a model's tensors as its initialisers.

    `model`: the flat vector in the manifest's order. Raises SchemaMismatch if the graph lacks one of its tensors.
    """
    proto = onnx.ModelProto.FromString(template)
    initialisers = {initialiser.name: initialiser for initialiser in proto.graph.initializer}
    for name, tensor in split(model, manifest.tensors).items():
        if name not in initialisers or tuple(initialisers[name].dims) != tensor.shape:
            raise SchemaMismatch(f"tensor {name!r} of shape {list(tensor.shape)} has no place in the ONNX graph")
        initialisers[name].CopyFrom(onnx.numpy_helper.from_array(np.asarray(tensor), name))
    onnx.helper.set_model_props(proto, metadata(manifest, origin))
    return proto.SerializeToString(deterministic=True)


def metadata(manifest: Manifest, origin: Origin | None = None) -> dict[str, str]:
    """What a bound graph says of itself; lists are JSON."""
    entries: dict[str, str] = {
        "release": RELEASE,
        "name": manifest.name,
        "model": manifest.model,
        "method": manifest.method,
        "classes": json.dumps(list(manifest.classes), ensure_ascii=False),
        "input": json.dumps({"kind": manifest.input.kind, "shape": list(manifest.input.shape)}),
    }
    if origin is not None:
        entries |= {
            "run": origin.run,
            "round": str(origin.round),
            "manifest_sha256": origin.manifest,
            "model_sha256": origin.model,
        }
    return {PREFIX + key: value for key, value in entries.items()}


def read_metadata(graph: bytes) -> Mapping[str, str]:
    """The entries that `bind` wrote, without their prefix."""
    proto = onnx.ModelProto.FromString(graph)
    return {
        entry.key.removeprefix(PREFIX): entry.value for entry in proto.metadata_props if entry.key.startswith(PREFIX)
    }
