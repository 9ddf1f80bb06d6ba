"""Rounds on hand-made files, for the tests of aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import TensorSpec, file_size, header_bytes, model_size
from moonfed.bundle.manifest import FILES, InputSpec, Manifest, PlanSpec
from moonfed.bundle.target import class_target
from moonfed.control.run_settings import MEAN, RunSettings
from moonfed.coordinator.aggregation.aggregate import aggregate
from moonfed.coordinator.aggregation.closed_round import ClosedRound, Contribution
from moonfed.coordinator.aggregation.model_files import SLICE_ELEMENTS
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.coordinator.draw import Draw
from moonfed.plan.training_spec import TrainingSpec
from moonfed.registry import Value, selection_of, setting_types

SPECS = (
    TensorSpec("a.weight", (17, 5), "parameter"),
    TensorSpec("b.running_mean", (11,), "statistic"),
    TensorSpec("b.running_var", (11,), "statistic"),
    TensorSpec("c", (), "parameter"),
)
SIZE = model_size(SPECS)
PARAMETER_SPECS = (SPECS[0], SPECS[3])
CLASS_MEANS = (TensorSpec("mask", (3,), "statistic"), TensorSpec("means", (3, 2), "statistic"))
PROTOTYPES = (TensorSpec("present", (3,), "statistic"), TensorSpec("prototypes", (3, 2), "statistic"))
PARAMETERS = np.array([True] * 85 + [False] * 22 + [True])  # by hand: 17 * 5, 2 * 11, 1
Floats = npt.NDArray[np.floating[Any]]


def momentum_of(momentum: float) -> TrainingSpec:
    """Training whose only hyperparameter is the clients' momentum."""
    return TrainingSpec(epochs=1, batch_size=8, hyperparameters={"momentum": momentum})


def make_manifest(**fields: Any) -> Manifest:
    given: dict[str, Any] = {
        "name": "digits",
        "model": "mlp",
        "method": "fedavg",
        "previous_models": 0,
        "training": TrainingSpec(epochs=1, batch_size=8, hyperparameters={"learning_rate": 0.1, "momentum": 0.9}),
        "input": InputSpec(kind="features", shape=(4,)),
        "target": class_target(("x", "y", "z")),
        "tensors": SPECS,
        "plan": PlanSpec(minimum_torch="2.4", built_with_torch="2.6", activation_bytes=0),
        "files": {file: ref_of_bytes(file.encode()) for file in FILES},
    }
    if rule := fields.get("server_rule"):
        fields["server_rule"] = selection_of(rule)
    return Manifest(**{**given, **fields})


def scaffold(**fields: Any) -> Manifest:
    return make_manifest(
        **{
            "method": "scaffold",
            "downlink": {"variate": PARAMETER_SPECS},
            "uplink": {"variate_change": PARAMETER_SPECS},
            **fields,
        }
    )


def fedssc(k: int, **fields: Any) -> Manifest:
    return make_manifest(
        **{
            "method": "fedssc",
            "prototype_devices": k,
            "downlink": {"prototypes": PROTOTYPES},
            "uplink": {"class_means": CLASS_MEANS},
            **fields,
        }
    )


def robust_settings(
    reducer: str = "mean",
    *,
    weight_cap: float = 0.0,
    clip_norm: float = 0.0,
    clip_factor: float = 0.0,
    **settings: Value,
) -> RunSettings:
    """Robust settings; `settings` are the reducer's."""
    return RunSettings(
        weight_cap=weight_cap,
        clip_norm=clip_norm,
        clip_factor=clip_factor,
        reducer=reducer,
        reducer_settings=settings,
    )


def robust_reducers(byzantine: int) -> list[RunSettings]:
    """Every reducer but the mean, each with the number of bad devices if that is one of its settings."""
    return [
        robust_settings(name, **({"byzantine": byzantine} if "byzantine" in setting_types(reducer) else {}))
        for name, reducer in REDUCERS.items()
        if name != MEAN
    ]


def write(path: Path, values: Floats, specs: Sequence[TensorSpec] = SPECS, padding: int = 0) -> Path:
    """A file of tensors, made without moonfed's writer; another writer may pad its header."""
    header = header_bytes(specs)
    text = header[8:] + b" " * padding
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + np.asarray(values, "<f4").tobytes())
    return path


def values_of(path: Path, specs: Sequence[TensorSpec] = SPECS) -> npt.NDArray[np.float64]:
    """All elements of a file as moonfed writes it."""
    content = path.read_bytes()
    assert len(content) == file_size(specs)
    return np.frombuffer(content[len(content) - 4 * model_size(specs) :], "<f4").astype(np.float64)


DRAW = Draw(bytes(range(32)))


@dataclass
class Rounds:
    """Consecutive rounds, each starting from the previous one's result."""

    directory: Path
    manifest: Manifest
    start: Floats
    enrolled: int = 0
    cohort: int = 0  # 0: as many as there are updates
    draw: Draw = DRAW
    slice_elements: int = SLICE_ELEMENTS
    done: int = 0
    robust: RunSettings = field(default_factory=RunSettings)
    state: Mapping[str, Path] = field(init=False)
    incidents: tuple[Incident, ...] = ()

    def __post_init__(self) -> None:
        self.state = {"model": write(self.directory / "start", self.start, self.manifest.tensors)}

    def next(
        self,
        models: Floats,
        samples: Sequence[int],
        steps: Sequence[int] | None = None,
        **uplink: tuple[Floats, Sequence[TensorSpec]],
    ) -> npt.NDArray[np.float64]:
        """Closes a round with one row of everything for each device; its model."""
        self.close(self.closed(models, samples, steps, **uplink))
        return values_of(self.state["model"], self.manifest.tensors)

    def closed(
        self,
        models: Floats,
        samples: Sequence[int],
        steps: Sequence[int] | None = None,
        **uplink: tuple[Floats, Sequence[TensorSpec]],
    ) -> ClosedRound:
        """The next round, its updates written."""
        self.done += 1
        place = self.directory / str(self.done)
        contributions = tuple(
            Contribution(
                device=f"cam-{number}",
                files={"model": write(place / f"{number}" / "model", models[number], self.manifest.tensors, 8 * number)}
                | {
                    role: write(place / f"{number}" / role, rows[number], specs)
                    for role, (rows, specs) in uplink.items()
                },
                samples=samples[number],
                steps=steps[number] if steps else 1,
            )
            for number in range(len(models))
        )
        return ClosedRound(
            manifest=self.manifest,
            round=self.done,
            draw=self.draw,
            enrolled=self.enrolled or len(models),
            global_state=self.state,
            contributions=contributions,
            cohort=self.cohort or len(models),
            settings=self.robust,
        )

    def close(self, closed: ClosedRound) -> None:
        place = self.directory / str(self.done)
        aggregated = aggregate(closed, place, slice_elements=self.slice_elements)
        self.state, self.incidents = aggregated.files, aggregated.incidents

    def memory(self, role: str, specs: Sequence[TensorSpec] = SPECS) -> npt.NDArray[np.float64]:
        return values_of(self.state[role], specs)
