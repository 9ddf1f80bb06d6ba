"""The interface of a task. Its numbers are computed from a model's outputs, as its ONNX graph returns them.

Legend: N samples, B a batch of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import Kind, TargetSpec

Array = npt.NDArray[Any]
_SMALLEST = float(np.finfo(np.float32).tiny)  # stands for a probability that underflowed, to avoid an infinite loss


class Scorer(ABC):
    """Sums over the batches of a test set, from which metrics follow at the end."""

    @abstractmethod
    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        """Add a batch: the graph's outputs [B, …], the targets [B, …] and the raw inputs [B, …]."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Return the metrics over all batches, the primary one first, `loss` among them; without those undefined.

        Empty if no target is known, such as a mask whose pixels are all ignored.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(ABC):
    """A task's settings: a frozen dataclass, checked when it is made.

    A subclass is one module; its torch half, which plans compile, is the class that `criterion` names.
    """

    name: ClassVar[str]  # in the registry, in bundles and on command lines
    target: ClassVar[Kind]  # what data hold, and devices keep
    metric: ClassVar[Metric]  # by which global models are compared
    others: ClassVar[tuple[str, ...]] = ()  # further metrics that `scorer` may give, besides `loss`
    criterion: ClassVar[str]  # `module:Class`, a subclass of moonfed.export.criteria.criterion:Criterion
    dense: ClassVar[bool] = False  # the outputs follow from the encoder's features rather than from the representation

    @abstractmethod
    def scorer(self, target: TargetSpec) -> Scorer:
        """Return an empty scorer."""


def cross_entropy(probabilities: Array) -> Array:
    """Return the negative logarithm, in nats, of the probability of each thing that is true."""
    losses: Array = -np.log(np.maximum(probabilities.astype(np.float64), _SMALLEST))
    return losses
