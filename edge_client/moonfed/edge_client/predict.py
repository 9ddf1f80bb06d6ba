"""`moonfed-client predict`: classifies with a release that this device has installed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, check_data_set
from moonfed.data.flaws import UnusableImage
from moonfed.data.folder import ReadImages, all_files, read_images
from moonfed.data.formats import FOLDER, find_kind
from moonfed.data.image_folder import ImageFolder
from moonfed.data.images import decode_image, require_images, require_pillow
from moonfed.data.open_source import open_source
from moonfed.data.source import IF_PRESENT, report
from moonfed.edge_client.inference.model import Outputs
from moonfed.edge_client.predictor import Predictor
from moonfed.errors import InvalidInput, NotFound
from moonfed.formatting import count
from moonfed.models.predictions import prediction_document

FILES = "a .npz, .csv or .parquet file"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """A model's predictions for some samples."""

    model: str  # the release's name
    version: int
    classes: tuple[str, ...]
    names: list[str]  # N: files, or positions in one file
    probabilities: Outputs  # [N, C]
    accuracy: float | None  # where the samples have labels

    def lines(self) -> Iterator[tuple[str, str, float]]:
        """Return each sample's name, most probable class and that class's probability."""
        for name, row in zip(self.names, self.probabilities, strict=True):
            best = int(row.argmax())
            yield name, self.classes[best], float(row[best])

    def to_document(self) -> dict[str, object]:
        """Return JSON values, with all classes of each sample."""
        best_first = np.argsort(-self.probabilities, axis=1, kind="stable")
        return {
            "model": self.model,
            "version": self.version,
            "predictions": [
                prediction_document(name, ((int(i), self.classes[i], float(row[i])) for i in order))
                for name, row, order in zip(self.names, self.probabilities, best_first, strict=True)
            ],
            **({} if self.accuracy is None else {"accuracy": self.accuracy}),
        }


def predict(paths: Sequence[Path], predictor: Predictor, target: str = "") -> Predictions:
    """Classify images, folders of images, or the samples of one file or function.

    Raises NotFound if there is no such directory or file, InvalidInput if the samples do not fit the model.
    """
    samples = _read(paths, predictor.input, predictor.target, target)
    version, probabilities = predictor.answer(samples.inputs)
    correct = None if samples.targets is None else probabilities.argmax(axis=1) == samples.targets
    return Predictions(
        model=predictor.name,
        version=version,
        classes=predictor.classes,
        names=samples.names(),
        probabilities=probabilities,
        accuracy=None if correct is None else float(np.mean(correct)),
    )


def print_predictions(predictions: Predictions) -> None:
    """Print the version, then one aligned line per sample."""
    print(f"version {predictions.version} of {predictions.model}")
    width = max(map(len, predictions.names), default=0)
    longest = max(map(len, predictions.classes), default=0)
    for name, best, confidence in predictions.lines():
        print(f"{name:{width}}  {best:{longest}}  {confidence:.3f}")
    if predictions.accuracy is not None:
        print(f"accuracy {predictions.accuracy:.4f} on {count(len(predictions.names), 'sample')}")


def _read(paths: Sequence[Path], spec: InputSpec, wanted: TargetSpec, target: str) -> DataSet:
    """Read the samples, with their labels if a file has them."""
    if not paths:
        raise InvalidInput(f"PATH is missing; give images, folders of images, or {FILES}")
    files = [path for path in paths if find_kind(str(path)) not in (None, FOLDER)]
    if not files:
        if target:
            raise InvalidInput(field="target", value=target, rest="; it names a column of a table, and PATH is images")
        return _read_images(paths, spec, wanted)
    if len(paths) > 1:
        raise InvalidInput(f"PATH is {str(files[0])!r} and others; {FILES} must be the only PATH")
    samples = open_source(str(files[0]), target).read(spec, wanted, labels=IF_PRESENT)
    samples.require_samples()
    return samples


def _read_images(paths: Sequence[Path], spec: InputSpec, wanted: TargetSpec) -> DataSet:
    """Read images; a file given as PATH must be an image, a folder may contain other files."""
    require_pillow()
    for path in paths:
        if not path.exists():
            raise NotFound(field="PATH", value=path, rest="; there is no such file or folder")
    require_images(spec)
    read = [_read_folder(path, spec) if path.is_dir() else _read_file(path, spec) for path in paths]
    files = [file for images in read for file in images.files]
    if not files:
        raise InvalidInput(field="PATH", value=paths[0], rest="; there are no readable images in it")
    inputs = np.concatenate([images.inputs for images in read])
    return check_data_set(inputs, None, spec, wanted, "the images", files=files)


def _read_folder(path: Path, spec: InputSpec) -> ReadImages:
    folder = ImageFolder(path)
    files = all_files(folder)
    read = read_images(files, spec, folder.flaws)
    report(tuple(folder.flaws.sentences(len(files), str(path))))
    return read


def _read_file(path: Path, spec: InputSpec) -> ReadImages:
    try:
        image = decode_image(path, spec)
    except UnusableImage as error:
        raise InvalidInput(field="PATH", value=path, rest=f", which {error.problem}") from error
    for flaw in image.flaws:
        _log.warning("%s %s", path, flaw.one)
    return ReadImages(inputs=image.pixels[None], files=(path,))
