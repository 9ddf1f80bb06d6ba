"""The values that the end of a round depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moonfed.bundle.manifest import MODEL, Manifest
from moonfed.control.run_settings import DEFAULTS, RunSettings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.privacy.mechanism import PrivateRound
from moonfed.server_rules.server_rule import Weighting


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One device's checked update."""

    device: str
    files: Mapping[str, Path]  # by role: the model and the manifest's uplink
    samples: int  # trained on, at least 1
    steps: int  # optimiser steps taken, at least 1
    sha256: str = ""  # of its model's file as received; private rounds need it


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRound:
    """A round with all its updates."""

    manifest: Manifest
    round: int
    draw: Draw  # the run's
    enrolled: int  # N: devices that belong to the run, at least the contributions'
    global_state: Mapping[str, Path]  # that the round started from, by role; a role not computed yet is absent
    contributions: tuple[Contribution, ...]  # in order of the devices' names
    cohort: int  # devices that the round was drawn with, however many are missing; in asynchronous rounds, the buffer
    settings: RunSettings = DEFAULTS  # the run's
    privacy: PrivateRound | None = None  # how a round of a run with privacy is released
    global_sha256: str = ""  # of the model in `global_state`; private rounds need it

    @property
    def models(self) -> list[Path]:
        """The contributions' models."""
        return [contribution.files[MODEL] for contribution in self.contributions]

    def weights(self, weighting: Weighting) -> list[int]:
        """Return the contributions' weights: p_i times their sum."""
        return [contribution.samples if weighting == "samples" else 1 for contribution in self.contributions]
