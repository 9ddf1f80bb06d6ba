"""A global model's results on a test set, as the evaluator records them and the model card shows them.

Legend: C classes, in the manifest's order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from moonfed.bundle.manifest import Metric
from moonfed.errors import InvalidInput
from moonfed.validate import require, require_whole

DEFAULT_TEST_SET = "test"
MAX_CONFUSION = 256  # classes up to which the matrix is recorded
MAX_CLASSES = 4000  # requests have a limited number of fields
MAX_CLASS_NAME = 1000  # characters
MAX_SAMPLES = 1_000_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_COUNTS = ("support", "predicted", "correct", "confusion")


def require_test_set(name: str) -> None:
    """Require the name of a test set."""
    allowed = "1 to 40 letters, digits, '.', '_' or '-', the first a letter or digit"
    require(_NAME.fullmatch(name) is not None, "test_set", name, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassScore:
    """One class's results; None where the denominator is 0."""

    name: str
    precision: float | None  # of what is predicted as the class, the share that belongs to it
    recall: float | None  # of what belongs to the class, the share that is found
    support: int  # samples, or pixels, of the class


def class_scores(
    names: Sequence[str], support: Sequence[int], predicted: Sequence[int], correct: Sequence[int]
) -> tuple[ClassScore, ...]:
    """Return the results of classes from what belongs to each, what is predicted as it, and what is both."""
    return tuple(
        ClassScore(
            name=name,
            precision=both / found if found else None,
            recall=both / belong if belong else None,
            support=belong,
        )
        for name, belong, found, both in zip(names, support, predicted, correct, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutScore:
    """A model's results on a test set; InvalidInput names a wrong field."""

    test_set: str
    sha256: str  # of the data, see `DataSet.sha256`
    samples: int
    metric: Metric  # the primary one, by which models are compared
    metrics: Mapping[str, float]  # all of the task's
    calibration_error: float | None = None  # expected calibration error; None: no classification
    calibration_bins: int = 0
    classes: tuple[str, ...] = ()  # empty where the task has none; so are the following
    support: tuple[int, ...] = ()  # [C] what belongs to each class
    predicted: tuple[int, ...] = ()  # [C] what is predicted as each class
    correct: tuple[int, ...] = ()  # [C] what is both
    confusion: tuple[int, ...] = ()  # [C * C], row by row: by class, then by prediction; empty for too many classes
    counts_of: Literal["samples", "pixels"] = "samples"  # what these are numbers of

    def __post_init__(self) -> None:
        require_test_set(self.test_set)
        require(_DIGEST.fullmatch(self.sha256) is not None, "sha256", self.sha256, "64 hexadecimal digits")
        require_whole("samples", self.samples, 1, MAX_SAMPLES)
        require(self.metric.name in self.metrics, "metrics", sorted(self.metrics)[:8], f"{self.metric.name} among them")
        for name, value in self.metrics.items():
            require(math.isfinite(value), name, value, "a finite number")
        self.metric.require_possible(self.metric.name, self.score)
        if self.calibration_error is not None:
            good = 0 <= self.calibration_error <= 1
            require(good, "calibration_error", self.calibration_error, "a number from 0 to 1")
        for name in self.classes:
            require(0 < len(name) <= MAX_CLASS_NAME and name.isprintable(), "a class", name, "printable")
        require_whole("calibration_bins", self.calibration_bins, 0, 1000)
        self._require_counts()

    def _require_counts(self) -> None:
        """Raise InvalidInput unless the counts agree with each other."""
        count = len(self.classes)
        require_whole("the number of classes", count, 0, MAX_CLASSES)
        for name in ("support", "predicted", "correct"):
            require(len(getattr(self, name)) == count, name, getattr(self, name)[:8], "one number for each class")
        whole = self.samples if self.counts_of == "samples" and count else sum(self.support)
        bounded = all(map(_fits, self.support, self.predicted, self.correct))
        if not (sum(self.support) == sum(self.predicted) == whole and bounded):
            raise InvalidInput(
                f"support, predicted and correct do not belong to the same {whole} {self.counts_of}",
                field="samples",
                value=self.samples,
            )
        if self.confusion and not self._matrix_agrees():
            raise InvalidInput("confusion does not agree with support, predicted and correct")

    def _matrix_agrees(self) -> bool:
        count, matrix = len(self.classes), self.confusion
        if count > MAX_CONFUSION or len(matrix) != count * count or min(matrix) < 0:
            return False
        rows = tuple(sum(matrix[i * count : (i + 1) * count]) for i in range(count))
        columns = tuple(sum(matrix[i::count]) for i in range(count))
        return (rows, columns, matrix[:: count + 1]) == (self.support, self.predicted, self.correct)

    @property
    def score(self) -> float:
        """The value of the primary metric."""
        return self.metrics[self.metric.name]

    @property
    def recorded(self) -> dict[str, float]:
        """The metrics as they are recorded of the round: `rmse`, or `rmse@night` on a test set of this name."""
        suffix = "" if self.test_set == DEFAULT_TEST_SET else f"@{self.test_set}"
        return {f"{name}{suffix}": value for name, value in self.metrics.items()}

    def described(self) -> dict[str, float]:
        """Return the metrics in the order in which they are shown: the primary one first, the loss last."""
        last = ("loss",) if self.metric.name != "loss" else ()
        names = [self.metric.name, *sorted(set(self.metrics) - {self.metric.name, *last}), *last]
        shown = {name: self.metrics[name] for name in names if name in self.metrics}
        return shown if self.calibration_error is None else shown | {"calibration error": self.calibration_error}

    def by_class(self) -> tuple[ClassScore, ...]:
        """Return precision and recall of each class."""
        return class_scores(self.classes, self.support, self.predicted, self.correct)

    def rows(self) -> list[tuple[int, ...]]:
        """Return the confusion matrix, one row for each class; empty if it is not recorded."""
        count = len(self.classes) or 1
        return [self.confusion[start : start + count] for start in range(0, len(self.confusion), count)]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values for users, with precision and recall."""
        return {
            "test_set": self.test_set,
            "sha256": self.sha256,
            "samples": self.samples,
            "metric": asdict(self.metric),
            "metrics": dict(self.metrics),
            "calibration_error": self.calibration_error,
            "calibration_bins": self.calibration_bins,
            "classes": [
                {"name": found.name, "precision": found.precision, "recall": found.recall, "support": found.support}
                for found in self.by_class()
            ],
            "confusion": [list(row) for row in self.rows()],
            "counts_of": self.counts_of,
        }

    def to_document(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> HeldOutScore:
        """Read what `to_document` wrote."""
        lists = {name: tuple(document[name]) for name in (*_COUNTS, "classes")}
        return cls(**{**document, **lists, "metric": Metric(**document["metric"])})


def _fits(support: int, predicted: int, correct: int) -> bool:
    return 0 <= correct <= min(support, predicted)
