"""The files of one version that a model is loaded from. The agent uses this module, so it needs no numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from moonfed.blobs.schema import TensorSpec
from moonfed.bundle.manifest import (
    MANIFEST_FILE,
    OWN_FILE,
    PLAN_NAMES,
    InputSpec,
    Manifest,
    output_shape,
    tensors_document,
)
from moonfed.bundle.target import TargetSpec
from moonfed.edge_client.state.release_files import StoredRelease
from moonfed.errors import NotFound, VersionMismatch
from moonfed.models.repository import MODEL_FILE
from moonfed.plan.selection import choose_plan

CHUNK = 64  # samples at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model's input and target, and its files: the ONNX file, or the plan's."""

    input: InputSpec
    target: TargetSpec
    onnx: Path
    plan: Mapping[str, Path] | None = None  # by name; None: ONNX Runtime runs the other file
    personal: tuple[TensorSpec, ...] = ()  # tensors of which this device may have its own
    own: Path | None = None  # the file of these; None: those that the bundle began with

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the output for one sample."""
        return output_shape(self.input, self.target)

    @property
    def task(self) -> str:
        """The sandbox's task that loads the model, a module."""
        return f"moonfed.edge_client.inference.{'onnx_task' if self.plan is None else 'plan_task'}"

    @property
    def files(self) -> dict[str, Path]:
        """All files by name."""
        return {MODEL_FILE: self.onnx, **(self.plan or {}), **({OWN_FILE: self.own} if self.own else {})}

    def settings(self) -> dict[str, Any]:
        """Return JSON values for the task, which finds the files by their names."""
        return {
            "input": self.input.to_document(),
            "target": self.target.to_document(),
            "personal": tensors_document(self.personal),
        }


def onnx_runtime_is_installed() -> bool:
    """Return whether this device can run ONNX files."""
    return find_spec("onnxruntime") is not None


def chosen_plan(files: Mapping[str, Path], runnable: Sequence[str]) -> dict[str, Path]:
    """Return a released plan's files by name, with only the form of the plan that this device runs.

    `runnable`: its plan interfaces, the preferred one first. Raises VersionMismatch if it runs none of them.
    """
    manifest = Manifest.from_bytes(files[MANIFEST_FILE].read_bytes())
    chosen = PLAN_NAMES[choose_plan(manifest, runnable)]
    if chosen not in files:
        raise VersionMismatch(f"the release lacks its plan's file {chosen}", field="plan", value=chosen)
    return {name: file for name, file in files.items() if name == chosen or name not in PLAN_NAMES.values()}


def files_of(stored: StoredRelease, runnable: Sequence[str]) -> ModelFiles:
    """Return the files of an installed version that this device can use; raise NotFound if it has none of them.

    `runnable`: see `chosen_plan`.
    """
    manifest, has_runtime = stored.manifest, onnx_runtime_is_installed()
    plan = None if has_runtime else stored.plan_files()
    if plan is None and not has_runtime:
        raise NotFound(
            f"version {manifest.version} of {manifest.name} was installed for ONNX Runtime, which is missing; "
            "install the package onnxruntime"
        )
    return ModelFiles(
        input=manifest.input,
        target=manifest.target,
        onnx=stored.model_file,
        plan=None if plan is None else chosen_plan(plan, runnable),
        personal=manifest.personal,
        own=stored.own,
    )
