"""Asks a model about image files: one that is served, through the Open Inference Protocol, or one in an ONNX file."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from moonfed.errors import InvalidInput, MoonfedError, NotFound, Unavailable
from moonfed.files import require_file
from moonfed.images import decode_image, require_pillow
from moonfed.manifest import InputSpec
from moonfed.transport import parse_address
from moonfed.validate import require_whole

if TYPE_CHECKING:
    from tritonclient.utils import InferenceServerException

OUTPUT = "probabilities"
_ERRORS = {
    "StatusCode.NOT_FOUND": NotFound,
    "StatusCode.UNAVAILABLE": Unavailable,
    "StatusCode.DEADLINE_EXCEEDED": Unavailable,
    "StatusCode.INVALID_ARGUMENT": InvalidInput,
}
SECONDS = 60.0  # for an answer
CONNECT_SECONDS = 5.0

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One class that a sample may be of."""

    index: int
    label: str  # empty: the model names no classes
    confidence: float


class Classifier(Protocol):
    """A model that takes pictures."""

    sample: InputSpec

    def classify(self, pixels: Pixels, top: int) -> list[Prediction]:
        """The most probable classes of one sample [height, width, channels], the best first."""


def classify_images(
    classifier: Classifier, images: Sequence[Path], top: int
) -> Iterator[tuple[Path, list[Prediction]]]:
    """Each image, fitted to what the model takes, with its classes; raises NotFound or InvalidInput for one."""
    require_pillow()
    require_whole("top", top, 1)
    for image in images:
        if not image.exists():
            raise NotFound(f"there is no file {str(image)!r}")
        pixels = decode_image(image, classifier.sample)
        if pixels is None:
            raise InvalidInput(f"{image} cannot be read as an image")
        yield image, classifier.classify(pixels, top)


class FileClassifier:
    """An ONNX file that `moonfed-export onnx` has written."""

    def __init__(self, path: Path) -> None:
        from moonfed.export.binding import read_metadata
        from moonfed.export.scoring import Predictor
        from moonfed.release.model_facts import class_names, input_spec

        require_file("file", path)
        graph = path.read_bytes()
        metadata = read_metadata(graph, str(path))
        self.sample, self._names = input_spec(metadata, str(path)), class_names(metadata)
        self._predictor = Predictor(graph)

    def classify(self, pixels: Pixels, top: int) -> list[Prediction]:
        """The most probable classes."""
        (confidences,) = self._predictor.predict(pixels[None])
        best = np.argsort(-confidences, kind="stable")[:top]
        return [Prediction(index=int(i), label=self._names[i], confidence=float(confidences[i])) for i in best]


class ServedClassifier:
    """A model of a server that speaks the protocol on gRPC, with Triton's classification extension."""

    def __init__(self, address: str, model: str, tls_ca: Path | None = None) -> None:
        """`tls_ca`: with TLS, and the server's certificate checked against these certificates (PEM)."""
        from tritonclient.grpc import InferenceServerClient

        parse_address(address, "server")
        if tls_ca:
            require_file("tls-ca", tls_ca)
        trusted = str(tls_ca) if tls_ca else None
        self._client = InferenceServerClient(address, ssl=trusted is not None, root_certificates=trusted)
        self._model = model
        with _explained(address):
            metadata = self._client.get_model_metadata(model, client_timeout=SECONDS)
        self._address = address
        if len(metadata.inputs) != 1 or metadata.inputs[0].datatype != "UINT8":
            raise InvalidInput(f"model {model!r} takes no pictures; its input must be one of UINT8")
        self._input = metadata.inputs[0].name
        self.sample = InputSpec(kind="image", shape=tuple(metadata.inputs[0].shape)[1:])  # after the batch dimension
        names = [output.name for output in metadata.outputs]
        self._output = OUTPUT if OUTPUT in names else names[0]

    def classify(self, pixels: Pixels, top: int) -> list[Prediction]:
        """The most probable classes."""
        from tritonclient.grpc import InferInput, InferRequestedOutput

        batch = pixels[None]
        given = InferInput(self._input, list(batch.shape), "UINT8")
        given.set_data_from_numpy(batch)
        wanted = InferRequestedOutput(self._output, class_count=top)
        with _explained(self._address):
            result = self._client.infer(self._model, [given], outputs=[wanted], client_timeout=SECONDS)
        return [_answer(entry.decode()) for entry in result.as_numpy(self._output).reshape(-1)]


def _answer(text: str) -> Prediction:
    """From "confidence:index:label"; a label may hold colons, and may be missing."""
    confidence, index, *label = text.split(":", 2)
    return Prediction(index=int(index), label="".join(label), confidence=float(confidence))


@contextmanager
def _explained(address: str) -> Iterator[None]:
    from tritonclient.utils import InferenceServerException

    try:
        yield
    except InferenceServerException as error:
        kind = _ERRORS.get(str(error.status()), MoonfedError)
        if kind is Unavailable:
            _require_reachable(address, error)
        raise kind(f"the server at {address} says: {error.message()}") from error


def _require_reachable(address: str, error: InferenceServerException) -> None:
    """gRPC says of every failure to connect that the server is unavailable; raises Unavailable with the reason."""
    try:
        socket.create_connection(parse_address(address), CONNECT_SECONDS).close()
    except OSError as reason:
        raise Unavailable(f"the server at {address} cannot be reached: {reason.strerror or reason}") from error
    if error.message().startswith("failed to connect"):
        raise Unavailable(
            f"the server at {address} does not answer in gRPC; is it the gRPC port, and with --tls-ca if it has TLS? "
            f"gRPC says: {error.message()}"
        ) from error
