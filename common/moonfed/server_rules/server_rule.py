"""The interface of a server rule.

A rule moves parameters; statistics (BatchNorm's running ones) are always the mean, because momentum could drive a
variance below zero. Rules are applied slice by slice, so that memory grows neither with the model nor with the fleet.
Notation: w the round's global model, w_i a device's, n_i its samples, p_i = n_i/n (or 1/|S|, uniform),
Δ = Σ p_i·w_i − w.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from moonfed.errors import InvalidInput

Weighting = Literal["samples", "uniform"]
Float64Array = npt.NDArray[np.float64]
Memory = Mapping[str, Float64Array]  # a rule's state between rounds, by role


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRule(ABC):
    """A rule and its settings; a subclass is a frozen dataclass that adds settings and defines `step`.

    `weighting`: whether a device weighs by its samples, or all devices weigh the same.
    """

    name: ClassVar[str]  # in the registry, in bundles and on command lines
    counts_steps: ClassVar[bool] = False  # devices weigh by their steps, too: `step_weights`
    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        if self.weighting not in ("samples", "uniform"):
            raise InvalidInput(field="weighting", value=self.weighting, allowed="'samples' or 'uniform'")

    @property
    def initial_memory(self) -> Mapping[str, float]:
        """The roles of the rule's memory, each with the initial value of all its elements."""
        return {}

    @abstractmethod
    def step(self, w: Float64Array, mean: Float64Array, memory: Memory) -> tuple[Float64Array, Memory]:
        """Return the next parameters and the next memory, with the same roles.

        Args:
            w: elements of the global model, [S].
            mean: the devices' mean model over these elements, or the result of robust aggregation, [S].
            memory: what the rule remembers of these elements, [S] for each role.
        """

    def step_weights(self, p: Sequence[float], steps: Sequence[int], momentum: float) -> list[float]:
        """Return q_i, for rules that count steps: their `mean` is w + Σ q_i·(w_i − w).

        Robust aggregation and asynchronous rounds reject such rules, since devices' steps are claims about one round.

        Args:
            p: each device's weight; the sum is 1.
            steps: the optimiser steps that each device reports, at least 1.
            momentum: of the round's local training, from 0, below 1.
        """
        raise NotImplementedError(f"{type(self).__name__} counts steps, but does not define step_weights")


def require_number(name: str, value: float, least: float, *, below: float = math.inf, above: bool = False) -> None:
    """Raise InvalidInput unless a setting is finite, from `least` (or above it), and below the limit."""
    if not (math.isfinite(value) and least <= value < below) or (above and value == least):
        limit = "" if math.isinf(below) else f", below {below:g}"
        raise InvalidInput(field=name, value=value, allowed=f"a number {'above' if above else 'from'} {least:g}{limit}")
