"""Publishing a run's model or an ONNX file as a version of a model repository, with its documents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tritonclient.utils import triton_to_np_dtype

from moonfed.blobs.store import ref_of_bytes
from moonfed.data.source import Source
from moonfed.errors import AlreadyExists, InvalidInput, NotFound
from moonfed.export.binding import read_metadata
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.export.scoring import open_session
from moonfed.models.repository import MODEL_FILE
from moonfed.release.bill_of_materials import BILL_FILE, bill_of_materials
from moonfed.release.model_card import CARD_FILE, model_card
from moonfed.release.model_facts import ModelFacts, TrainingHistory, evaluate_on, read_curve, read_evaluations
from moonfed.release.repository import INSTANCES, MAX_BATCH_SIZE, ModelDirectory, ModelRelease, PublishedVersion
from moonfed.release.signing import ReleaseSigner
from moonfed.release.triton_config import ANY, GraphInterface, GraphTensor, read_interface
from moonfed.signing.release_signature import SIGNATURE_FILE

if TYPE_CHECKING:  # it imports torch, which is not needed to publish a file
    from moonfed.release.model_file import CheckedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model to publish."""

    graph: bytes  # an ONNX file
    where: str  # its origin, for messages
    round: int | None  # None: unknown
    history: TrainingHistory | None = None  # None: it comes from a file


def read_candidate(path: Path) -> Candidate:
    """Read an ONNX file, such as one from `moonfed-export onnx`; raise NotFound."""
    if not path.is_file():
        raise NotFound(f"there is no file {str(path)!r}", field="file", value=path)
    graph = path.read_bytes()
    read_interface(graph, str(path))
    number = read_metadata(graph).get("round", "")
    return Candidate(graph=graph, where=str(path), round=int(number) if number.isdecimal() else None)


def candidate_of_run(runs: CoordinatorClient, checked: CheckedModel) -> Candidate:
    """Make a candidate of a run's checked model."""
    run = runs.run(checked.run)
    curve = read_curve(runs, run, checked.round)
    scores, on_devices = read_evaluations(runs, checked.run, checked.round)
    return Candidate(
        graph=checked.graph,
        where=f"round {checked.round} of run {checked.run!r}",
        round=checked.round,
        history=TrainingHistory(
            manifest=checked.manifest,
            curve=curve,
            max_abs_diff=checked.max_abs_diff,
            scores=scores,
            on_devices=on_devices,
            privacy=run.privacy,
        ),
    )


def publish(
    directory: ModelDirectory,
    candidate: Candidate,
    *,
    version: int | None = None,
    data: Source | None = None,
    key: Path | None = None,
    max_batch_size: int = MAX_BATCH_SIZE,
    instances: int = INSTANCES,
    serve_newest: bool = False,
) -> PublishedVersion:
    """Publish a version with its model card and bill of materials, signed if there is a key.

    `version`: by default the round. `data`: samples with labels, for the card's figures. `serve_newest`: see
    `ModelDirectory.publish`. Raises what `ModelDirectory.publish` raises, and InvalidInput for a model that ONNX
    Runtime cannot run.
    """
    signer = ReleaseSigner(key) if key else None
    number = version if version is not None else _version(candidate, directory)
    facts = gather_facts(directory.name, number, candidate, data)
    require_runnable(candidate.graph, facts.interface, candidate.where)
    files = {
        MODEL_FILE: candidate.graph,
        CARD_FILE: model_card(facts).encode(),
        BILL_FILE: bill_of_materials(facts),
        **facts.pictures,
    }
    release = ModelRelease(interface=facts.interface, classes=facts.classes if facts.labelled else (), files=files)
    published = directory.publish(
        number,
        release,
        max_batch_size=max_batch_size,
        instances=instances,
        serve_newest=serve_newest,
        signer=signer,
    )
    if signer and not (published.path / SIGNATURE_FILE).exists():
        raise AlreadyExists(f"{published.path} exists without a signature; sign it with `moonfed-export sign-release`")
    return published


def gather_facts(name: str, version: int, candidate: Candidate, data: Source | None) -> ModelFacts:
    """Gather the facts about a candidate."""
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
    """Raise InvalidInput unless ONNX Runtime runs the model on zeros with the outputs of its interface."""
    try:
        session = open_session(graph)
        if any(ANY in tensor.shape[1:] for tensor in interface.inputs):
            return  # the size of a sample is unknown
        zeros = {tensor.name: _zeros(tensor) for tensor in interface.inputs}
        outputs = session.run([tensor.name for tensor in interface.outputs], zeros)
    except Exception as error:  # ONNX Runtime's errors share no public base class
        raise InvalidInput(f"{where} cannot be run by ONNX Runtime: {str(error).splitlines()[0]}") from error
    for tensor, output in zip(interface.outputs, outputs, strict=True):
        expected = [1 if side == ANY else side for side in tensor.shape]
        if list(output.shape) != expected:
            raise InvalidInput(
                f"output {tensor.name!r} of {where} has shape {list(output.shape)}; its graph declares {expected}"
            )


def _version(candidate: Candidate, directory: ModelDirectory) -> int:
    if candidate.round == 0:
        raise InvalidInput(
            f"{candidate.where} is the initial model, but versions start at 1; choose one with --version"
        )
    return candidate.round or max(directory.versions(), default=0) + 1


def _zeros(tensor: GraphTensor) -> npt.NDArray[Any]:
    name = tensor.type_name.removeprefix("TYPE_").replace("STRING", "BYTES")
    return np.zeros([1 if side == ANY else side for side in tensor.shape], dtype=triton_to_np_dtype(name))
