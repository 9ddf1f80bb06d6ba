"""Binding of a model's tensors into a bundle's ONNX graph, with metadata on their origin. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from moonfed.blobs.tensors import Vector, open_model, split
from moonfed.bundle.manifest import InputSpec, Manifest, graph_name
from moonfed.errors import Corrupt, InvalidInput, SchemaMismatch
from moonfed.export.resizing import resized
from moonfed.plan.inspection.graph import require_self_contained
from moonfed.version import RELEASE

INPUT, EMBEDDINGS = "inputs", "embeddings"  # of the graph; embeddings are z [B, D]
PREFIX = "moonfed."
_PREPROCESSING = "preprocessing."  # prefix of the names of its constants


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOrigin:
    """The run and round that produced a model."""

    run: str
    round: int  # 0: the run's initial weights
    manifest: str  # sha256
    model: str  # sha256


def bind_file(template: bytes, model: Path, manifest: Manifest, origin: ModelOrigin | None = None) -> bytes:
    """Bind a model file; raise SchemaMismatch if its tensors are not the manifest's."""
    return bind(template, open_model(model, manifest.tensors), manifest, origin)


def bind(
    template: bytes,
    model: Vector,
    manifest: Manifest,
    origin: ModelOrigin | None = None,
    *,
    embeddings: bool = False,
    personal: Vector | None = None,
) -> bytes:
    """Return the graph with a model's tensors as its initialisers, and optionally with `embeddings` as second output.

    `model`: the flat vector of the shared tensors in the manifest's order; `personal`: of a device's own. Frozen ones
    are in the template. Raises SchemaMismatch if the graph lacks one of its tensors, InvalidInput if it lacks the
    requested embeddings or refers to another file, or if personal tensors are not given.
    """
    require_self_contained(template)
    if personal is None:
        require_complete(manifest)
    proto = onnx.ModelProto.FromString(template)
    initialisers = {initialiser.name: initialiser for initialiser in proto.graph.initializer}
    own = {} if personal is None else split(personal, manifest.personal)
    own = {graph_name(name): tensor for name, tensor in own.items()}
    for name, tensor in {**split(model, manifest.tensors), **own}.items():
        if name not in initialisers or tuple(initialisers[name].dims) != tensor.shape:
            raise SchemaMismatch(
                f"tensor {name!r} of shape {list(tensor.shape)} has no place in the ONNX graph",
                field="tensor",
                value=name,
            )
        initialisers[name].CopyFrom(onnx.numpy_helper.from_array(np.asarray(tensor), name))
    _choose_outputs(proto, manifest, embeddings=embeddings)
    steps = json.dumps(_preprocessing(proto, manifest.input), sort_keys=True)
    _set_metadata(proto, {**metadata(manifest, origin), "preprocessing": steps})
    return proto.SerializeToString(deterministic=True)


def require_complete(manifest: Manifest) -> None:
    """Raise InvalidInput if a run's global model is not a whole model, because devices keep tensors to themselves."""
    if manifest.personal:
        raise InvalidInput(
            f"the personal tensors of {manifest.name!r}, such as {manifest.personal[0].name}, never leave the devices, "
            "so there is no complete global model; `moonfed-coordinator run evaluate` scores it on the devices",
            field="personal",
            value=manifest.name,
        )


def metadata(manifest: Manifest, origin: ModelOrigin | None = None) -> dict[str, str]:
    """Return a bound graph's metadata entries; lists are JSON."""
    entries: dict[str, str] = {
        "release": RELEASE,
        "name": manifest.name,
        "model": manifest.model,
        "method": manifest.method,
        "target": manifest.target.to_text(),
        "task": manifest.task.name,
        "input": manifest.input.to_text(),
    }
    if origin is not None:
        entries |= {
            "run": origin.run,
            "round": str(origin.round),
            "manifest_sha256": origin.manifest,
            "model_sha256": origin.model,
        }
    return entries


def read_metadata(graph: bytes, where: str = "the graph") -> Mapping[str, str]:
    """Read moonfed's metadata entries without their prefix; raise InvalidInput for bytes that are not ONNX."""
    try:
        require_self_contained(graph, where)
        proto = onnx.ModelProto.FromString(graph)
    except (Corrupt, DecodeError) as error:
        raise InvalidInput(f"{where} is not an ONNX model, or is damaged") from error
    return {
        entry.key.removeprefix(PREFIX): entry.value for entry in proto.metadata_props if entry.key.startswith(PREFIX)
    }


def with_metadata(graph: bytes, entries: Mapping[str, str]) -> bytes:
    """Return the graph with exactly these metadata entries, sorted."""
    require_self_contained(graph)
    proto = onnx.ModelProto.FromString(graph)
    _set_metadata(proto, entries)
    return proto.SerializeToString(deterministic=True)


def _set_metadata(proto: onnx.ModelProto, entries: Mapping[str, str]) -> None:
    onnx.helper.set_model_props(proto, {PREFIX + key: entries[key] for key in sorted(entries)})


def _choose_outputs(proto: onnx.ModelProto, manifest: Manifest, *, embeddings: bool) -> None:
    """Drop unwanted outputs; all nodes stay."""
    wanted = (manifest.target.output, EMBEDDINGS) if embeddings else (manifest.target.output,)
    chosen = [output for output in proto.graph.output if output.name in wanted]
    if len(chosen) < len(wanted):
        raise InvalidInput(
            f"embeddings are requested, but the graph of bundle {manifest.name!r} has none", field="embeddings"
        )
    del proto.graph.output[:]
    proto.graph.output.extend(chosen)


def _preprocessing(proto: onnx.ModelProto, sample: InputSpec) -> dict[str, object]:
    """Describe the graph's preprocessing; the constants are read from the graph itself.

    Images: value * factor + shift for each channel, then bilinear resizing to `resized` (height and width) if they are
    too small. Features: (value - mean) / deviation.
    """
    steps: dict[str, object] = {
        tensor.name.removeprefix(_PREPROCESSING): (onnx.numpy_helper.to_array(tensor) + 0.0).tolist()  # avoids -0.0
        for tensor in proto.graph.initializer
        if tensor.name.startswith(_PREPROCESSING)
    }
    sides = [resized(side) for side in sample.shape[:2]]
    if sample.kind == "image" and sides != list(sample.shape[:2]):
        steps["resized"] = sides
    return steps
