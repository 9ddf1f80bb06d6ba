"""Paths below a simulation's output directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from moonfed.bundle.manifest import FROZEN_FILE, MANIFEST_FILE, PERSONAL_FILE, PLAN_NAMES, Manifest
from moonfed.plan.selection import choose_plan, local_interfaces
from moonfed.version import GRAPH_PLAN_INTERFACE

RUN = "simulation"  # the run's name, on the coordinator and with every party


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a simulation."""

    root: Path

    @property
    def recipe(self) -> Path:
        """The recipe."""
        return self.root / "simulation.json"

    @property
    def run_recipe(self) -> Path:
        """The recipe of a run on devices, which `run start --recipe` takes."""
        return self.root / "recipe.toml"

    @property
    def bundle(self) -> Path:
        """The bundle's directory."""
        return self.root / "bundle"

    @property
    def manifest(self) -> Path:
        """The bundle's manifest."""
        return self.bundle / MANIFEST_FILE

    def plan(self, manifest: Manifest) -> Path:
        """Return the bundle's plan in the form that the recipe requires, or else in the one that this machine prefers.

        Raises VersionMismatch if this machine cannot run it.
        """
        required = json.loads(self.recipe.read_bytes()).get("require_plan") if self.recipe.is_file() else None
        interface = choose_plan(manifest, local_interfaces(), GRAPH_PLAN_INTERFACE if required else "")
        return self.bundle / PLAN_NAMES[interface]

    @property
    def parts(self) -> dict[str, str]:
        """The bundle's files of frozen and of personal tensors, if it has any, by name."""
        files = (self.bundle / name for name in (FROZEN_FILE, PERSONAL_FILE))
        return {file.name: str(file) for file in files if file.exists()}

    @property
    def data(self) -> Path:
        """The samples in order of the parties; see moonfed.experiments.fleet.data."""
        return self.root / "data"

    @property
    def split(self) -> Path:
        """The sha256 of the split, and its sizes; stays when the samples are deleted."""
        return self.root / "split.json"

    @property
    def coordinator(self) -> Path:
        """The coordinator's state directory."""
        return self.root / "coordinator"

    def runs(self, party: str) -> Path:
        """Return the directory of a party's rounds; see moonfed.edge_client.state.round_store."""
        return self.root / "parties" / party / "runs"

    @property
    def checkpoint(self) -> Path:
        """Facts about the checkpoint that this was restored from; see moonfed.experiments.fleet.checkpoint."""
        return self.root / "checkpoint.json"

    @property
    def clock(self) -> Path:
        """Elapsed time of the open round."""
        return self.root / "clock.json"

    @property
    def results(self) -> Path:
        """One line of JSON for each round, or for each party that trains alone."""
        return self.root / "results.jsonl"

    @property
    def summary(self) -> Path:
        """The result, written when the simulation has finished."""
        return self.root / "summary.json"

    @property
    def model(self) -> Path:
        """The last global model."""
        return self.root / "model.safetensors"

    @property
    def picture(self) -> Path:
        """The score by round, by the metric's name."""
        return self.root / f"{Manifest.from_bytes(self.manifest.read_bytes()).metric.name}.png"
