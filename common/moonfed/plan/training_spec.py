"""The specification of local training in one round: part of every manifest, assignment and training job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from moonfed.validate import require_finite, require_whole

MAX_COUNT = 2**32 - 1  # uint32 in fleet.proto


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    """A device's loop over its data, and the plan's hyperparameters for it; TrainingSpec in fleet.proto.

    Raises InvalidInput naming the field.
    """

    epochs: int
    batch_size: int
    views: int = 0  # augmented copies of the data that epochs cycle through; 0: a fresh copy in every epoch
    hyperparameters: Mapping[str, float] = field(default_factory=dict)  # learning_rate, momentum, … and the method's

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("views", 0)):
            require_whole(name, getattr(self, name), least, MAX_COUNT)
        for name, value in self.hyperparameters.items():
            require_finite(f"hyperparameter {name!r}", value)

    def with_hyperparameters(self, values: Mapping[str, float]) -> TrainingSpec:
        """Return a copy in which these hyperparameters are replaced."""
        return replace(self, hyperparameters={**self.hyperparameters, **values})

    def to_document(self) -> dict[str, Any]:
        """Return the fields as JSON values, which are also the protobuf message's arguments."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TrainingSpec:
        """Read what `to_document` wrote."""
        counts = {key: int(value) for key, value in document.items() if key != "hyperparameters"}
        values = {str(key): float(value) for key, value in document["hyperparameters"].items()}
        return cls(**counts, hyperparameters=values)
