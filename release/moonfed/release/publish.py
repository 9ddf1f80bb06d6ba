"""Makes a version of a model repository from a run's model or from an ONNX file, with the documents beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tritonclient.utils import triton_to_np_dtype

from moonfed.blobs import ref_of_bytes
from moonfed.errors import AlreadyExists, InvalidInput, NotFound
from moonfed.export.binding import read_metadata
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.export.scoring import open_session
from moonfed.release.bill_of_materials import BILL_FILE, bill_of_materials
from moonfed.release.model_card import CARD_FILE, model_card
from moonfed.release.model_facts import ModelFacts, TrainingHistory, evaluate_on, read_curve
from moonfed.release.repository import INSTANCES, MAX_BATCH_SIZE, ModelDirectory, ModelRelease, PublishedVersion
from moonfed.release.signing import SIGNATURE_FILE, signature_of
from moonfed.release.triton_config import ANY, MODEL_FILE, GraphInterface, GraphTensor, read_interface

if TYPE_CHECKING:  # it imports torch, which publishing a file does not need
    from moonfed.export.model_file import CheckedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model that may become a version."""

    graph: bytes  # an ONNX file
    where: str  # it comes from, for messages
    round: int | None  # None: it does not say
    history: TrainingHistory | None = None  # None: it comes from a file


def read_candidate(path: Path) -> Candidate:
    """An ONNX file, such as `moonfed-export onnx` writes; raises NotFound."""
    if not path.is_file():
        raise NotFound(f"there is no file {str(path)!r}")
    graph = path.read_bytes()
    read_interface(graph, str(path))
    number = read_metadata(graph).get("round", "")
    return Candidate(graph=graph, where=str(path), round=int(number) if number.isdecimal() else None)


def candidate_of_run(runs: CoordinatorClient, checked: CheckedModel) -> Candidate:
    """A run's model that agrees with its plan."""
    curve = read_curve(runs, runs.get(checked.run), checked.round)
    return Candidate(
        graph=checked.graph,
        where=f"round {checked.round} of run {checked.run!r}",
        round=checked.round,
        history=TrainingHistory(manifest=checked.manifest, curve=curve, max_abs_diff=checked.max_abs_diff),
    )


def publish(
    directory: ModelDirectory,
    candidate: Candidate,
    *,
    version: int | None = None,
    data: Path | None = None,
    key: Path | None = None,
    max_batch_size: int = MAX_BATCH_SIZE,
    instances: int = INSTANCES,
    take_over: bool = False,
) -> PublishedVersion:
    """Writes a version with its model card and bill of materials, signed if there is a key.

    `version`: by default the round. `data`: an .npz with labels, for the card's figures. `take_over`: see
    `ModelDirectory.publish`. Raises what
    `ModelDirectory.publish` raises, and InvalidInput for a model that ONNX Runtime cannot run.
    """
    number = version if version is not None else _version(candidate, directory)
    facts = gather_facts(directory.name, number, candidate, data)
    require_runnable(candidate.graph, facts.interface, candidate.where)
    files = {
        MODEL_FILE: candidate.graph,
        CARD_FILE: model_card(facts).encode(),
        BILL_FILE: bill_of_materials(facts),
    }
    if key:
        files[SIGNATURE_FILE] = signature_of(files, number, key)
    release = ModelRelease(interface=facts.interface, classes=facts.classes, files=files)
    published = directory.publish(
        number, release, max_batch_size=max_batch_size, instances=instances, take_over=take_over
    )
    if key and not (published.path / SIGNATURE_FILE).exists():
        raise AlreadyExists(f"{published.path} is there without a signature; remove it to publish it signed")
    return published


def gather_facts(name: str, version: int, candidate: Candidate, data: Path | None) -> ModelFacts:
    """All that is known of a candidate."""
    metadata = read_metadata(candidate.graph)
    ref = ref_of_bytes(candidate.graph)
    return ModelFacts(
        name=name,
        version=version,
        sha256=ref.sha256,
        size=ref.size,
        interface=read_interface(candidate.graph, candidate.where),
        metadata=metadata,
        history=candidate.history,
        results=evaluate_on(candidate.graph, metadata, data) if data else None,
    )


def require_runnable(graph: bytes, interface: GraphInterface, where: str) -> None:
    """Raises InvalidInput unless ONNX Runtime runs the model on zeros and gives what the interface says."""
    try:
        session = open_session(graph)
        if any(ANY in tensor.shape[1:] for tensor in interface.inputs):
            return  # nobody knows how large a sample is
        zeros = {tensor.name: _zeros(tensor) for tensor in interface.inputs}
        outputs = session.run([tensor.name for tensor in interface.outputs], zeros)
    except Exception as error:  # ONNX Runtime's errors share no public class
        raise InvalidInput(f"{where} cannot be run by ONNX Runtime: {str(error).splitlines()[0]}") from error
    for tensor, output in zip(interface.outputs, outputs, strict=True):
        expected = [1 if side == ANY else side for side in tensor.shape]
        if list(output.shape) != expected:
            raise InvalidInput(f"output {tensor.name!r} of {where} has shape {list(output.shape)}; it says {expected}")


def _version(candidate: Candidate, directory: ModelDirectory) -> int:
    if candidate.round == 0:
        raise InvalidInput(
            f"{candidate.where} holds the weights that a run started from, those of round 0; "
            "versions begin at 1, so choose a --version"
        )
    return candidate.round or max(directory.versions(), default=0) + 1


def _zeros(tensor: GraphTensor) -> npt.NDArray[Any]:
    name = tensor.type_name.removeprefix("TYPE_").replace("STRING", "BYTES")
    return np.zeros([1 if side == ANY else side for side in tensor.shape], dtype=triton_to_np_dtype(name))
