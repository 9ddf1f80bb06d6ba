"""`moonfed-client predict`: predicts with a release that this device has installed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, check_data_set
from moonfed.data.flaws import UnusableImage
from moonfed.data.folder import ReadImages, all_files, read_images
from moonfed.data.folder_targets import holds_targets
from moonfed.data.formats import FOLDER, TABLES, find_kind
from moonfed.data.image_folder import ImageFolder
from moonfed.data.images import decode_image, require_images, require_pillow
from moonfed.data.open_source import open_source
from moonfed.data.source import IF_PRESENT, IGNORED, report
from moonfed.data.texts import read_text_paths
from moonfed.edge_client.inference.model import Outputs
from moonfed.edge_client.predictor import Predictor
from moonfed.errors import InvalidInput, NotFound
from moonfed.formatting import count
from moonfed.models.mask_files import mask_files, write_mask
from moonfed.models.predictions import output_document, output_text
from moonfed.tasks.anomaly_detection import AnomalyScorer
from moonfed.tasks.figure import FIGURES, figure
from moonfed.tasks.multilabel import LabelScorer
from moonfed.tasks.sample_errors import Errors, sample_errors
from moonfed.tasks.segmentation import MaskScorer
from moonfed.tasks.task import Scorer

MEASURED = ("auroc", "mean_iou", "macro_f1")  # by scorers
FILES = "a .npz, .csv or .parquet file"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """A model's predictions for some samples."""

    model: str  # the release's name
    version: int
    target: TargetSpec
    documents: list[dict[str, Any]]  # N: see `output_document`
    scores: Mapping[str, float]  # how good they are, by name; empty: the samples have no targets

    def to_document(self) -> dict[str, object]:
        """Return JSON values."""
        return {
            "model": self.model,
            "version": self.version,
            "predictions": self.documents,
            **{name.replace(" ", "_"): value for name, value in self.scores.items()},
        }


def predict(paths: Sequence[Path], predictor: Predictor, column: str = "", masks: Path | None = None) -> Predictions:
    """Predict for images or texts, folders of them, or the samples of one file or function.

    `column`: of a table, with the targets. `masks`: a folder for the masks of a segmentation, one PNG for each sample.
    Raises NotFound if there is no such directory or file, InvalidInput if the samples do not fit the model.
    """
    target = predictor.target
    if masks and target.kind != "mask":
        raise InvalidInput(field="masks", value=masks, rest=f"; the model predicts {target.describe()}")
    samples = _read(paths, predictor.input, target, column)
    version, parts = predictor.stream(samples.inputs)
    names, documents, scores = samples.names(), list[dict[str, Any]](), _Scores(target, samples)
    files = mask_files(masks, names, samples.files) if masks else []
    for part, outputs in parts:
        rows, form = zip(names[part], outputs, samples.inputs[part], strict=True), (target, predictor.input)
        shown = [output_document(name, *form, output, sample, predictor.threshold) for name, output, sample in rows]
        for document, file, output in zip(shown, files[part], outputs, strict=False):
            write_mask(file, output)
            document["mask"] = str(file)
        documents += shown
        scores.add(part, outputs)
    return Predictions(
        model=predictor.name, version=version, target=target, documents=documents, scores=scores.values()
    )


class _Scores:
    """Scores of outputs: what their task measures, or the figure of their errors."""

    def __init__(self, target: TargetSpec, samples: DataSet) -> None:
        self._kind, self._samples, self._known = target.kind, samples, samples.targets is not None
        self._scorer, self._errors = _scorer(target), list[Errors]()

    def add(self, part: slice, outputs: Outputs) -> None:
        """Add the outputs for some samples."""
        if not self._known and self._kind != "next":
            return
        targets, inputs = self._samples.known_targets()[part], self._samples.inputs[part]
        if self._scorer is not None:
            self._scorer.add(outputs, targets, inputs)
        else:
            self._errors.append(sample_errors(self._kind, outputs, targets, inputs))

    def values(self) -> dict[str, float]:
        """Return the scores by name; none for samples without targets."""
        if self._scorer is not None:
            found = self._scorer.metrics() if self._known else {}
            return {name: value for name, value in found.items() if name in MEASURED}
        if not self._errors:
            return {}
        mean = float(np.concatenate(self._errors).mean(dtype=np.float64))
        return {FIGURES[self._kind]: figure(self._kind, mean)}


def _scorer(target: TargetSpec) -> Scorer | None:
    """Return the scorer of a kind of target whose metric is no mean over samples."""
    if target.kind == "none":
        return AnomalyScorer()
    if target.kind == "mask":
        return MaskScorer(len(target.names))
    return LabelScorer(len(target.names)) if target.kind == "labels" else None


def print_predictions(predictions: Predictions) -> None:
    """Print the version, then one aligned line per sample."""
    print(f"version {predictions.version} of {predictions.model}")
    target, documents = predictions.target, predictions.documents
    width = max((len(found["name"]) for found in documents), default=0)
    longest = max(map(len, target.names), default=0)
    for found in documents:
        text = output_text(found, target, longest)
        if "mask" in found:
            text += f"  → {found['mask']}"
        print(f"{found['name']:{width}}  {text}")
    for name, value in predictions.scores.items():
        print(f"{name} {value:.4f} on {count(len(documents), 'sample')}")


def _read(paths: Sequence[Path], spec: InputSpec, wanted: TargetSpec, target: str) -> DataSet:
    """Read the samples, with their targets if a file or a folder has them."""
    if not paths:
        raise InvalidInput(f"PATH is missing; give images, folders of images, or {FILES}")
    files = [path for path in paths if find_kind(str(path)) not in (None, FOLDER)]
    if not files:
        if target:
            raise InvalidInput(field="target", value=target, rest="; it names a column of a table, and PATH is none")
        if spec.kind == "tokens":
            return read_text_paths(paths, spec, wanted)
        if len(paths) == 1 and holds_targets(paths[0], wanted):
            return open_source(str(paths[0])).read(spec, wanted)
        return _read_images(paths, spec, wanted)
    if len(paths) > 1:
        raise InvalidInput(f"PATH is {str(files[0])!r} and others; {FILES} must be the only PATH")
    tabular = find_kind(str(files[0])) in TABLES
    labels = IGNORED if tabular and len(wanted.shape) == 2 else IF_PRESENT  # what follows the last window is unknown
    samples = open_source(str(files[0]), target).read(spec, wanted, labels=labels)
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
    inputs = np.concatenate([images.inputs for images in read]) if len(read) > 1 else read[0].inputs
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
