"""Initial weights of a run, given as a run's name, a .safetensors file, or an ONNX file of moonfed-export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moonfed.blobs.schema import TensorSpec
from moonfed.blobs.store import DIGEST, ref_of_file
from moonfed.blobs.tensors import file_size, open_model, require_finite, write_model
from moonfed.client import Coordinator
from moonfed.errors import Corrupt, InvalidInput, NotFound, SchemaMismatch
from moonfed.plan.inspection.initialisers import FLOAT, GraphContents, read_graph
from moonfed.v1 import blob_pb2

PREFIX = "moonfed."  # of the metadata that moonfed-export writes


@dataclass(frozen=True, slots=True)
class InitialModel:
    """A run's initial weights: a stored blob, or a file to upload. `source`: as the operator named them."""

    source: str
    sha256: str
    file: Path | None = None


def find_model(client: Coordinator, source: str, specs: Sequence[TensorSpec], scratch: Path) -> InitialModel:
    """Return the weights that `source` names: those of an existing file, or else of a run's newest model.

    `scratch`: a new file, for weights that are read from an ONNX file. Raises NotFound if there is neither,
    SchemaMismatch if a file does not have the tensors of `specs`.
    """
    path = Path(source)
    if path.is_file():
        return _model_of_onnx(client, path, specs, scratch) if path.suffix == ".onnx" else _model_of_file(path, specs)
    if path.suffix in (".onnx", ".safetensors") or "/" in source:
        raise NotFound(field="from", value=source, rest="; there is no such file")
    try:
        run = client.run(source)
    except NotFound as error:
        raise NotFound(field="from", value=source, rest="; there is no such run, and no such file") from error
    return InitialModel(source, run.model.sha256)


def _model_of_file(path: Path, specs: Sequence[TensorSpec]) -> InitialModel:
    try:
        require_finite(open_model(path, specs), specs)
    except SchemaMismatch as error:
        raise SchemaMismatch(field="from", value=path, rest=f", which does not match this bundle: {error}") from error
    return InitialModel(str(path), ref_of_file(path).sha256, path)


def _model_of_onnx(client: Coordinator, path: Path, specs: Sequence[TensorSpec], scratch: Path) -> InitialModel:
    """Return the weights that were bound to the graph: the graph's own, or if they were folded, the stored ones."""
    try:
        graph = read_graph(path.read_bytes(), str(path))
    except Corrupt as error:
        raise InvalidInput(field="from", value=path, rest=", which is not an ONNX model, or is damaged") from error
    sha256 = graph.metadata.get(PREFIX + "model_sha256", "")
    if not DIGEST.fullmatch(sha256):
        raise InvalidInput(
            field="from",
            value=path,
            rest=", which does not name its run; it must be a file that `moonfed-export onnx` has written",
        )
    if _write_weights(graph, specs, scratch) and ref_of_file(scratch).sha256 == sha256:
        return InitialModel(str(path), sha256, scratch)
    if _is_stored(client, sha256, specs):
        return InitialModel(str(path), sha256)
    run, round_ = (graph.metadata.get(PREFIX + key, "unknown") for key in ("run", "round"))
    raise InvalidInput(
        field="from",
        value=path,
        rest=(
            ", whose weights do not match this bundle, or were folded when the file was written and the "
            f"coordinator lacks the originals (round {round_} of run {run!r}); give a file that `run "
            "weights` has written"
        ),
    )


def _write_weights(graph: GraphContents, specs: Sequence[TensorSpec], target: Path) -> bool:
    """Write the graph's weights as a model; return False if it does not have all of them."""
    slices = []
    for spec in specs:
        found = graph.initialisers.get(spec.name)
        if found is None or found.data_type != FLOAT or found.shape != spec.shape or len(found.data) != 4 * spec.size:
            return False
        slices.append(np.frombuffer(found.data, "<f4"))
    write_model(target, specs, slices)
    return True


def _is_stored(client: Coordinator, sha256: str, specs: Sequence[TensorSpec]) -> bool:
    """Return whether the coordinator has a blob of that name and of the model's size."""
    request = blob_pb2.FetchRequest(sha256=sha256, offset=file_size(specs))
    try:
        client.connection.ask_all(blob_pb2.Chunk, "Fetch", request)
    except (InvalidInput, NotFound):
        return False
    return True
