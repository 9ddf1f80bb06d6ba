"""Predictions for images and tables by a served model, over the Open Inference Protocol, or by an ONNX file."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import INPUT_PARAMETER, PERSONAL_ONLY, PERSONAL_PARAMETER, InputSpec, read_input
from moonfed.bundle.target import NO_TARGET, OUTPUTS, TARGET_PARAMETER, THRESHOLD_PARAMETER, TargetSpec, read_target
from moonfed.data.data_set import Inputs
from moonfed.data.formats import FOLDER, find_kind
from moonfed.data.images import decode_image, require_pillow
from moonfed.data.open_source import open_source
from moonfed.data.source import IGNORED
from moonfed.data.texts import read_text_paths
from moonfed.errors import Denied, InvalidInput, MoonfedError, NotFound, Unavailable, Untrusted, UntrustedRelease
from moonfed.files import require_file
from moonfed.models.mask_files import mask_files, write_mask
from moonfed.models.predictions import output_document, output_text, prediction_document
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


class Model(Protocol):
    """A model that predicts for raw samples."""

    sample: InputSpec

    @property
    def target(self) -> TargetSpec | None:
        """Its predictions' target; None: classes, whose names a server may know."""

    def predict(self, name: str, sample: Inputs, top: int) -> Prediction:
        """Predict for one sample of that name, in the form that `sample` describes; `top`: classes to return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A model's answer for a sample."""

    document: dict[str, Any]  # see `output_document`
    output: npt.NDArray[np.float32] | None = None  # None: a server has sent the best classes only

    def text(self, target: TargetSpec | None) -> str:
        """Return it in words, with the sample's name."""
        return f"{self.document['name']}  {_classes_text(self.document, target)}"


def predict_paths(model: Model, paths: Sequence[str], top: int, masks: Path | None = None) -> Iterator[Prediction]:
    """Yield the prediction of each sample: of images, or of the samples of one file, folder or function.

    Images are fitted to the model's input, and rows of tables are encoded as for training. `masks`: a folder for the
    masks of a segmentation, one PNG for each sample. Raises NotFound or InvalidInput.
    """
    require_whole("top", top, 1)
    if masks and (model.target is None or model.target.kind != "mask"):
        raise InvalidInput(field="masks", value=masks, rest="; the model predicts no masks")
    texts = model.sample.kind == "tokens" and all(find_kind(path) in (None, FOLDER) for path in paths)
    sources = [path for path in paths if find_kind(path) is not None and not texts]
    if sources and len(paths) > 1:
        raise InvalidInput(f"PATH is {sources[0]!r} and others; it must be the only PATH, unless all are images")
    if sources or texts:
        wanted = model.target or NO_TARGET
        data = (
            read_text_paths(list(map(Path, paths)), model.sample, NO_TARGET)
            if texts
            else open_source(sources[0], option="PATH").read(model.sample, wanted, labels=IGNORED)
        )
        names, inputs, images = data.names(), iter(data.inputs), data.files
    else:
        names, images = list(paths), tuple(map(Path, paths))
        inputs = _decoded(images, model.sample)
    files = mask_files(masks, names, images) if masks else [None] * len(names)
    for name, sample, file in zip(names, inputs, files, strict=True):
        found = model.predict(name, sample, top)
        if file and found.output is not None:
            write_mask(file, found.output)
            found.document["mask"] = str(file)
        yield found


def _decoded(images: Sequence[Path], spec: InputSpec) -> Iterator[Inputs]:
    require_pillow()
    for image in images:
        if not image.exists():
            raise NotFound(f"there is no file {str(image)!r}", field="file", value=image)
        decoded = decode_image(image, spec)
        for flaw in decoded.flaws:
            _log.warning("%s %s", image, flaw.one)
        yield decoded.pixels


def _classes_text(document: dict[str, Any], target: TargetSpec | None) -> str:
    if target and target.kind != "class":
        drawn = f"  → {document['mask']}" if "mask" in document else ""
        return f"{output_text(document, target)}{drawn}"
    best = ((each["label"] or f"class {each['index']}", each["confidence"]) for each in document["classes"])
    return ", ".join(f"{label} {confidence:.4f}" for label, confidence in best)


class FileModel:
    """A model in an ONNX file written by `moonfed-export onnx`."""

    def __init__(self, path: Path, verify_keys: Sequence[Path] = ()) -> None:
        """Read the file; if keys are given, one of them must have signed the version that the file belongs to."""
        from moonfed.export.binding import PREFIX, read_metadata
        from moonfed.export.scoring import Predictor
        from moonfed.release.model_facts import input_spec

        require_file("file", path)
        graph = _verified(path, verify_keys) if verify_keys else path.read_bytes()
        metadata = read_metadata(graph, str(path))
        if PERSONAL_PARAMETER.removeprefix(PREFIX) in metadata:
            raise InvalidInput(PERSONAL_ONLY, field="personal", value=str(path))
        self.sample = input_spec(metadata, str(path))
        self.target = read_target(metadata.get("target", "{}"), str(path))
        self._threshold = _number(metadata.get("threshold"))
        self._predictor = Predictor(graph)

    def predict(self, name: str, sample: Inputs, top: int) -> Prediction:
        """Run the file."""
        (output,) = self._predictor.predict(sample[None])
        document = output_document(name, self.target, self.sample, output, sample, self._threshold)
        if "classes" in document:
            document["classes"] = document["classes"][:top]
        return Prediction(document=document, output=output)


def _number(text: str | None) -> float | None:
    return float(text) if text else None


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


class ServedModel:
    """A model on a server that speaks the protocol on gRPC, for classes with Triton's classification extension."""

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
        self._address, self._model, self._headers = address, model, credentials.headers()
        with _translate_errors(address):
            metadata = self._client.get_model_metadata(model, headers=self._headers, client_timeout=SECONDS)
            parameters = self._parameters(_is_image(metadata.inputs))
        self._datatype, self.sample = _read_input(model, metadata.inputs, parameters)
        described, self._threshold = parameters.get(TARGET_PARAMETER), _number(parameters.get(THRESHOLD_PARAMETER))
        self.target = read_target(described, f"model {model!r}") if described else None
        self._input = metadata.inputs[0].name
        names = [output.name for output in metadata.outputs]
        self._output = next((name for name in names if name in OUTPUTS), names[0])

    def _parameters(self, image: bool) -> dict[str, str]:
        """Read how a model's configuration describes it; nothing if a server that takes images has none."""
        from tritonclient.utils import InferenceServerException

        try:
            found = self._client.get_model_config(self._model, headers=self._headers, client_timeout=SECONDS).config
        except InferenceServerException:
            if not image:
                raise
            return {}
        return {key: value.string_value for key, value in found.parameters.items()}

    def predict(self, name: str, sample: Inputs, top: int) -> Prediction:
        """Ask the server."""
        from tritonclient.grpc import InferInput, InferRequestedOutput

        batch = sample[None]
        batch_input = InferInput(self._input, list(batch.shape), self._datatype)
        batch_input.set_data_from_numpy(batch)
        requested = InferRequestedOutput(self._output, class_count=0 if self.target else top)
        with _translate_errors(self._address):
            result = self._client.infer(
                self._model, [batch_input], outputs=[requested], headers=self._headers, client_timeout=SECONDS
            )
        found = result.as_numpy(self._output)
        if self.target:
            (output,) = found
            document = output_document(name, self.target, self.sample, output, sample, self._threshold)
            return Prediction(document=document, output=output)
        best = [_parse_class(entry.decode()) for entry in found.reshape(-1)]
        return Prediction(document=prediction_document(name, best))


def _is_image(inputs: Sequence[Any]) -> bool:
    return [(each.datatype, len(each.shape)) for each in inputs] == [("UINT8", 4)]


def _read_input(model: str, inputs: Sequence[Any], parameters: Mapping[str, str]) -> tuple[str, InputSpec]:
    """Return the datatype of a served model's input, and one sample; InvalidInput for models with other inputs."""
    datatype, shape = inputs[0].datatype, tuple(inputs[0].shape)  # with the batch dimension
    if INPUT_PARAMETER in parameters:
        return datatype, read_input(parameters[INPUT_PARAMETER], f"model {model!r}")
    kind = _KINDS.get((datatype, len(shape)))
    if len(inputs) != 1 or kind is None:
        raise InvalidInput(
            f"model {model!r} accepts neither images nor features; it must have a single input, of UINT8 with "
            "height, width and channels, or of FP32 with features",
            field="model",
            value=model,
        )
    return datatype, InputSpec(kind=kind, shape=shape[1:])


def _parse_class(text: str) -> tuple[int, str, float]:
    """Parse "confidence:index:label"; the label may contain colons, and may be missing."""
    confidence, index, *label = text.split(":", 2)
    return int(index), "".join(label), float(confidence)


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
