"""Differential privacy that runs have spent: a device's, towards whoever sees all global models."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Mechanism = Literal["gaussian", "none"]
GAUSSIAN: Mechanism = "gaussian"
NO_NOISE: Mechanism = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacySpent:
    """The privacy that one run has spent."""

    epsilon: float  # spent so far
    budget: float  # epsilon that the run may spend
    delta: float
    sampling_rate: float  # with which each round draws each device
    noise_multiplier: float  # the noise's standard deviation, as a multiple of the clip
    clip_norm: float  # of the next round
    releases: int = 0  # global models that were released, and are charged
    rounds: int = 0  # that the budget permits
    unprotected: tuple[str, ...] = ()  # what else was released of devices' data, without noise


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyCharge:
    """The releases of one run, which may be deleted by now, that were made in the same way."""

    run: str
    created: datetime  # of the run: a later run may have its name
    mechanism: Mechanism  # none: an unprotected release
    releases: int
    epsilon: float = 0.0  # of these releases alone, at their own delta; 0: no noise protects them
    delta: float = 0.0
    sampling_rate: float = 0.0
    noise_multiplier: float = 0.0
    what: str = ""  # was released without noise
    last: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyReport:
    """The privacy that several runs have spent together."""

    epsilon: float  # of all protected releases together
    delta: float
    charges: tuple[PrivacyCharge, ...] = ()  # the oldest first
    runs_without: tuple[str, ...] = ()  # present runs without privacy, which no epsilon covers
