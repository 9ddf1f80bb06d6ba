"""`moonfed-client predict`: classifies with a finished model that this device has fetched."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from moonfed.edge_client.agent.child_process import SILENCE_SECONDS
from moonfed.edge_client.agent.sandboxed_process import JobDirectory, Sandbox, sandboxed_process, shared_file
from moonfed.edge_client.data.folder import image_files
from moonfed.edge_client.state.finished_models import Finished, find_finished
from moonfed.edge_client.state.trust import stored_check
from moonfed.edge_client.worker.messages import encode
from moonfed.errors import InvalidInput, NotFound, TrainingFailed
from moonfed.files import read_regular
from moonfed.images import decode_image, require_pillow
from moonfed.manifest import MANIFEST_FILE, Manifest
from moonfed.samples import Inputs, check_inputs, has_labels, read_inputs, read_npz
from moonfed.sandbox.policy import Level, require_level, require_unreadable
from moonfed.validate import require_whole

RESULT_FILE = "probabilities"  # float32 [N, C]
STATE_MARKERS = ("identity", "lock", "finished")  # a state directory has one of these at least

log = logging.getLogger(__name__)
Probabilities = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """A model's predictions for some samples."""

    model: Finished
    classes: tuple[str, ...]
    names: list[str]  # N: files, or places in an .npz file
    probabilities: Probabilities  # [N, C]
    accuracy: float | None  # where the samples have labels

    def lines(self) -> Iterator[tuple[str, str, float]]:
        """Return each sample's name, most probable class and that class's probability."""
        for name, row in zip(self.names, self.probabilities, strict=True):
            best = int(row.argmax())
            yield name, self.classes[best], float(row[best])

    def to_document(self) -> dict[str, object]:
        """Return JSON values."""
        return {
            "run": self.model.run,
            "rounds": self.model.rounds,
            "classes": list(self.classes),
            "predictions": [
                {"name": name, "class": best, "confidence": confidence, "probabilities": row.tolist()}
                for (name, best, confidence), row in zip(self.lines(), self.probabilities, strict=True)
            ],
            **({} if self.accuracy is None else {"accuracy": self.accuracy}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSettings:
    """Settings of the computation; InvalidInput names a wrong option."""

    accelerator: str = "cpu"
    threads: int | None = None  # torch's threads; None: torch chooses
    sandbox: Level = "strict"
    silence_seconds: float = SILENCE_SECONDS  # for one batch

    def __post_init__(self) -> None:
        if self.threads is not None:
            require_whole("threads", self.threads, 1)
        if self.accelerator not in ("cpu", "cuda"):
            raise InvalidInput(f"device is {self.accelerator!r}; it must be 'cpu' or 'cuda'")
        require_level(self.sandbox)


def predict(paths: Sequence[Path], state: Path, computing: ComputeSettings, *, run: str = "") -> Predictions:
    """Classify images, folders of images, or the inputs of one .npz file.

    Raises NotFound if STATE holds no finished model (of that run) or there is no such directory or file, InvalidInput
    if STATE is not a state directory or the samples do not fit the model, Corrupt for a damaged model.
    """
    _require_state(state)
    if computing.sandbox == "strict":
        require_unreadable(state)
    model = find_finished(state / "finished", run)
    manifest = model.read_manifest(stored_check(state))
    names, inputs, labels = _read(paths, manifest)
    probabilities = _probabilities(model, manifest, inputs, computing, state)
    accuracy = None if labels is None else float(np.mean(probabilities.argmax(axis=1) == labels))
    return Predictions(
        model=model, classes=manifest.classes, names=names, probabilities=probabilities, accuracy=accuracy
    )


def print_predictions(predictions: Predictions) -> None:
    """Print the model's origin, then one aligned line per sample."""
    model = predictions.model
    print(f"model of run {model.run} after {model.rounds} round{'s' if model.rounds != 1 else ''}")
    width = max(map(len, predictions.names), default=0)
    longest = max(map(len, predictions.classes), default=0)
    for name, best, confidence in predictions.lines():
        print(f"{name:{width}}  {best:{longest}}  {confidence:.3f}")
    if predictions.accuracy is not None:
        print(f"accuracy {predictions.accuracy:.4f} on {len(predictions.names)} samples")


def _require_state(state: Path) -> None:
    if not state.exists():
        raise NotFound(f"state is {str(state)!r}; there is no such directory")
    if not any((state / name).exists() for name in STATE_MARKERS):
        raise InvalidInput(f"state is {str(state)!r}, which is not a state directory of `moonfed-client`")


def _read(paths: Sequence[Path], manifest: Manifest) -> tuple[list[str], Inputs, npt.NDArray[np.int64] | None]:
    """Return names, inputs, and labels if there are any."""
    if not paths:
        raise InvalidInput("PATH is missing; give images, folders of images, or an .npz file with inputs")
    tables = [path for path in paths if path.suffix == ".npz"]
    if not tables:
        return _read_images(paths, manifest)
    if len(paths) > 1:
        raise InvalidInput(f"PATH is {str(tables[0])!r} and others; an .npz file must be the only PATH")
    file = tables[0]
    if has_labels(file):
        samples = read_npz(file, manifest.input, manifest.classes)
        return _sample_names(file, len(samples)), samples.inputs, samples.labels
    inputs = read_inputs(file, manifest.input)
    return _sample_names(file, len(inputs)), inputs, None


def _sample_names(file: Path, count: int) -> list[str]:
    if count == 0:
        raise InvalidInput(f"{file} has no samples; at least one is needed")
    return [f"{file.name}[{number}]" for number in range(count)]


def _read_images(paths: Sequence[Path], manifest: Manifest) -> tuple[list[str], Inputs, None]:
    """Read images; a file given as PATH must be an image, a folder may contain other files."""
    require_pillow()
    names, images = [], []
    for path in paths:
        if not path.exists():
            raise NotFound(f"PATH is {str(path)!r}; there is no such file or folder")
        for file in image_files(path) if path.is_dir() else [path]:
            image = decode_image(file, manifest.input)
            if image is not None:
                names.append(str(file))
                images.append(image)
            elif path.is_dir():
                log.warning("%s cannot be read as an image and is ignored", file)
            else:
                raise InvalidInput(f"PATH is {str(path)!r}, which cannot be read as an image")
    if not images:
        raise InvalidInput(f"PATH is {str(paths[0])!r}; there are no readable images in it")
    return names, check_inputs(np.stack(images), manifest.input, "the images"), None


def _probabilities(
    model: Finished, manifest: Manifest, inputs: Inputs, computing: ComputeSettings, state: Path
) -> Probabilities:
    """Compute in the sandbox."""
    shape = (len(inputs), len(manifest.classes))
    written, readable = shared_file()
    with TemporaryDirectory(prefix="moonfed-") as root, os.fdopen(written, "wb") as file, os.fdopen(readable):
        file.write(inputs.data)
        file.flush()
        directory = JobDirectory(Path(root), state)
        directory.clear()
        for path in (model.directory / MANIFEST_FILE, model.plan_file, model.model_file):
            directory.add(path, path.name)
        sandbox = Sandbox(
            level=computing.sandbox, accelerator=computing.accelerator, file_size=4 * math.prod(shape) + 1
        )  # fmt: skip
        wanted = {"directory": str(directory.input), "file": readable, "samples": len(inputs)}
        settings = wanted | {"accelerator": computing.accelerator, "threads": computing.threads}
        child = sandboxed_process("predict", settings, sandbox, directory, (readable,), computing.silence_seconds)
        try:
            child.answer(encode("predict"), "predicted")
        finally:
            child.end()
        computed = read_regular(directory.output / RESULT_FILE, 4 * math.prod(shape))
    if len(computed) != 4 * math.prod(shape):
        raise TrainingFailed("the training process sent invalid results")
    return np.frombuffer(computed, np.float32).reshape(shape)
