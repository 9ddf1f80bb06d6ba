"""Classification of images and tables by a served model, over the Open Inference Protocol, or by an ONNX file."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from moonfed.bundle.manifest import INPUT_PARAMETER, InputSpec, read_input
from moonfed.bundle.target import NO_TARGET, OUTPUTS
from moonfed.data.data_set import Inputs
from moonfed.data.formats import find_kind
from moonfed.data.images import decode_image, require_pillow
from moonfed.data.open_source import open_source
from moonfed.data.source import IGNORED
from moonfed.errors import Denied, InvalidInput, MoonfedError, NotFound, Unavailable, Untrusted, UntrustedRelease
from moonfed.files import require_file
from moonfed.transport.client import parse_address
from moonfed.validate import require_whole

if TYPE_CHECKING:
    from tritonclient.utils import InferenceServerException

_log = logging.getLogger(__name__)

_KINDS: dict[tuple[str, int], Literal["image", "features"]] = {("UINT8", 4): "image", ("FP32", 2): "features"}
_ERRORS = {
    "StatusCode.NOT_FOUND": NotFound,
    "StatusCode.UNAVAILABLE": Unavailable,
    "StatusCode.DEADLINE_EXCEEDED": Unavailable,
    "StatusCode.INVALID_ARGUMENT": InvalidInput,
    "StatusCode.UNAUTHENTICATED": Untrusted,
    "StatusCode.PERMISSION_DENIED": Denied,
}
SECONDS = 60.0  # to wait for a response
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A class with the model's confidence in it."""

    index: int
    label: str  # empty if the model does not name its classes
    confidence: float


class Classifier(Protocol):
    """A model that classifies raw samples."""

    sample: InputSpec

    def classify(self, sample: Inputs, top: int) -> list[Prediction]:
        """Return the most probable classes of one sample, in the form that `sample` describes, best first."""


def classify_paths(classifier: Classifier, paths: Sequence[str], top: int) -> Iterator[tuple[str, list[Prediction]]]:
    """Yield each sample's name with its classes: of images, or of the samples of one file, folder or function.

    Images are fitted to the model's input, and rows of tables are encoded as for training. Raises NotFound or
    InvalidInput.
    """
    require_whole("top", top, 1)
    sources = [path for path in paths if find_kind(path) is not None]
    if sources and len(paths) > 1:
        raise InvalidInput(f"PATH is {sources[0]!r} and others; it must be the only PATH, unless all are images")
    if not sources:
        yield from _classify_images(classifier, [Path(path) for path in paths], top)
        return
    data = open_source(sources[0], option="PATH").read(classifier.sample, NO_TARGET, labels=IGNORED)
    for name, sample in zip(data.names(), data.inputs, strict=True):
        yield name, classifier.classify(sample, top)


def _classify_images(
    classifier: Classifier, images: Sequence[Path], top: int
) -> Iterator[tuple[str, list[Prediction]]]:
    require_pillow()
    for image in images:
        if not image.exists():
            raise NotFound(f"there is no file {str(image)!r}", field="file", value=image)
        decoded = decode_image(image, classifier.sample)
        for flaw in decoded.flaws:
            _log.warning("%s %s", image, flaw.one)
        yield str(image), classifier.classify(decoded.pixels, top)


class FileClassifier:
    """A classifier in an ONNX file written by `moonfed-export onnx`."""

    def __init__(self, path: Path, verify_keys: Sequence[Path] = ()) -> None:
        """Read the file; if keys are given, one of them must have signed the version that the file belongs to."""
        from moonfed.export.binding import read_metadata
        from moonfed.export.scoring import Predictor
        from moonfed.release.model_facts import input_spec, target_spec

        require_file("file", path)
        graph = _verified(path, verify_keys) if verify_keys else path.read_bytes()
        metadata = read_metadata(graph, str(path))
        self.sample, target = input_spec(metadata, str(path)), target_spec(metadata, str(path))
        if target.kind != "class":
            raise InvalidInput(f"{path} predicts {target.describe()}; `classify` takes models of classes", field="file")
        self._names = target.names
        self._predictor = Predictor(graph)

    def classify(self, sample: Inputs, top: int) -> list[Prediction]:
        """Return the most probable classes, best first."""
        (confidences,) = self._predictor.predict(sample[None])
        best = np.argsort(-confidences, kind="stable")[:top]
        return [Prediction(index=int(i), label=self._names[i], confidence=float(confidences[i])) for i in best]


def _verified(path: Path, verify_keys: Sequence[Path]) -> bytes:
    """Read a file of a signed version, REPOSITORY/NAME/VERSION/FILE.onnx; raise UntrustedRelease."""
    from moonfed.signing.release_directory import verified_version
    from moonfed.signing.release_signature import read_release_key

    directory = path.resolve().parent
    if not directory.name.isdecimal():
        raise UntrustedRelease(
            f"{path} is not signed; it must be in a signed version, such as digits/7/{path.name}",
            field="signature",
            value=path,
        )
    keys = [read_release_key(key) for key in verify_keys]
    return verified_version(directory.parent, int(directory.name), keys)[path.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """The files with which a client verifies a server and authenticates itself; PEM, except for the API key."""

    tls_ca: Path | None = None  # enables TLS, and verifies the server's certificate
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    api_key: Path | None = None

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidInput("tls-certificate and tls-key must be given together, or neither")
        if self.tls_certificate is not None and self.tls_ca is None:
            raise InvalidInput("tls-certificate is given without tls-ca; it needs TLS")

    def require_files(self) -> None:
        """Raise NotFound unless the files exist."""
        for name in ("tls_ca", "tls_certificate", "tls_key", "api_key"):
            path = getattr(self, name)
            if path is not None:
                require_file(name.replace("_", "-"), path)

    def headers(self) -> dict[str, str]:
        """Return the metadata of every call."""
        return {"authorization": f"Bearer {self.api_key.read_text().strip()}"} if self.api_key else {}


class ServedClassifier:
    """A classifier on a server that speaks the protocol on gRPC, with Triton's classification extension."""

    def __init__(self, address: str, model: str, credentials: ClientCredentials = ClientCredentials()) -> None:
        """Connect to the server."""
        from tritonclient.grpc import InferenceServerClient

        parse_address(address, "server")
        credentials.require_files()
        ca, certificate, key = (
            None if path is None else str(path)
            for path in (credentials.tls_ca, credentials.tls_certificate, credentials.tls_key)
        )
        self._client = InferenceServerClient(
            address, ssl=ca is not None, root_certificates=ca, private_key=key, certificate_chain=certificate
        )
        self._model, self._headers = model, credentials.headers()
        with _translate_errors(address):
            metadata = self._client.get_model_metadata(model, headers=self._headers, client_timeout=SECONDS)
            self._datatype, self.sample = _read_input(model, metadata.inputs)
            if self.sample.kind == "features":  # which may come from tables; other servers may have no configurations
                config = self._client.get_model_config(model, headers=self._headers, client_timeout=SECONDS).config
                self.sample = _read_columns(config, model) or self.sample
        self._address, self._input = address, metadata.inputs[0].name
        names = [output.name for output in metadata.outputs]
        self._output = next((name for name in names if name in OUTPUTS), names[0])

    def classify(self, sample: Inputs, top: int) -> list[Prediction]:
        """Return the most probable classes, best first."""
        from tritonclient.grpc import InferInput, InferRequestedOutput

        batch = sample[None]
        batch_input = InferInput(self._input, list(batch.shape), self._datatype)
        batch_input.set_data_from_numpy(batch)
        requested = InferRequestedOutput(self._output, class_count=top)
        with _translate_errors(self._address):
            result = self._client.infer(
                self._model, [batch_input], outputs=[requested], headers=self._headers, client_timeout=SECONDS
            )
        return [_parse_prediction(entry.decode()) for entry in result.as_numpy(self._output).reshape(-1)]


def _read_input(model: str, inputs: Sequence[Any]) -> tuple[str, InputSpec]:
    """Return the datatype of a served model's input, and one sample; InvalidInput for models with other inputs."""
    datatype, shape = inputs[0].datatype, tuple(inputs[0].shape)  # with the batch dimension
    kind = _KINDS.get((datatype, len(shape)))
    if len(inputs) != 1 or kind is None:
        raise InvalidInput(
            f"model {model!r} accepts neither images nor features; it must have a single input, of UINT8 with "
            "height, width and channels, or of FP32 with features",
            field="model",
            value=model,
        )
    return datatype, InputSpec(kind=kind, shape=shape[1:])


def _read_columns(config: Any, model: str) -> InputSpec | None:  # noqa: ANN401 - tritonclient has no types
    """Return one sample as the model's configuration describes it; None if it does not."""
    text = config.parameters[INPUT_PARAMETER].string_value if INPUT_PARAMETER in config.parameters else ""
    return read_input(text, f"model {model!r}") if text else None


def _parse_prediction(text: str) -> Prediction:
    """Parse "confidence:index:label"; the label may contain colons, and may be missing."""
    confidence, index, *label = text.split(":", 2)
    return Prediction(index=int(index), label="".join(label), confidence=float(confidence))


@contextmanager
def _translate_errors(address: str) -> Iterator[None]:
    from tritonclient.utils import InferenceServerException

    try:
        yield
    except InferenceServerException as error:
        kind = _ERRORS.get(str(error.status()), MoonfedError)
        if kind is Unavailable:
            _require_reachable(address, error)
        raise kind(f"the server at {address} answered: {error.message()}") from error


def _require_reachable(address: str, error: InferenceServerException) -> None:
    """Raise Unavailable with the reason why the server cannot be reached, which gRPC's own error does not give."""
    try:
        socket.create_connection(parse_address(address), CONNECT_SECONDS).close()
    except OSError as reason:
        raise Unavailable(f"the server at {address} cannot be reached: {reason.strerror or reason}") from error
    if error.message().startswith("failed to connect"):
        raise Unavailable(
            f"the server at {address} does not speak gRPC; is this the gRPC port, and does it need --tls-ca? "
            f"gRPC's error: {error.message()}"
        ) from error
