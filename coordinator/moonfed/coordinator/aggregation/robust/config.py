"""A run's robust aggregation: bounds on the harm that a faulty or malicious device can do to the global model.

An update passes schema, finite numbers, weight cap, norm clip and reducer. The first two are checks of the upload; the
others are chosen here and applied when a round closes, before the server rule. All are off by default, as in the
papers' methods; `run start` uses DEFAULT_BOUNDS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moonfed.coordinator.aggregation.robust.reducers import DEFAULT_REDUCER, REDUCERS
from moonfed.coordinator.aggregation.robust.reducers.mean import MeanReducer
from moonfed.coordinator.aggregation.robust.reducers.reducer import CoordinatewiseReducer, Reducer, WeightingReducer
from moonfed.errors import InvalidInput
from moonfed.registry import Selection, Value, read_value

BOUNDS = ("weight_cap", "clip_norm", "clip_factor")


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustSettings:
    """The chosen parts; a bound of 0 and the reducer "mean" switch a part off.

    `weight_cap`: the maximum weight of one device, as a multiple of an equal share of the cohort. `clip_norm`: the L2
    norm of a device's change of the parameters above which the change is scaled down; `clip_factor`: the same bound as
    a multiple of the median of the round's norms. `reducer` takes the place of the weighted mean; `build_reducer`
    checks it, so that recorded settings stay readable while the package of a reducer is not installed.
    """

    weight_cap: float = 0.0
    clip_norm: float = 0.0
    clip_factor: float = 0.0
    reducer: Selection = DEFAULT_REDUCER

    def __post_init__(self) -> None:
        if self.weight_cap and not 1 <= self.weight_cap < math.inf:
            raise InvalidInput(
                f"weight_cap is {self.weight_cap}; it must be a multiple of an equal share, from 1, or 0 for none"
            )
        _require_bound("clip_norm", self.clip_norm)
        _require_bound("clip_factor", self.clip_factor)

    def __bool__(self) -> bool:
        return self != RobustSettings()

    @property
    def clips(self) -> bool:
        """True if changes longer than the bound are scaled down."""
        return bool(self.clip_norm or self.clip_factor)

    @property
    def is_mean(self) -> bool:
        """True if updates are averaged after the weight cap and the norm clip."""
        return self.reducer.name == MeanReducer.name

    def build_reducer(self) -> Reducer:
        """Construct the reducer; InvalidInput if it is unknown, has a wrong base class or conflicts with a bound."""
        reducer = REDUCERS.build(self.reducer)
        if not isinstance(reducer, CoordinatewiseReducer | WeightingReducer | MeanReducer):
            raise InvalidInput(
                f"reducer is {reducer.name!r}; its class must derive from CoordinatewiseReducer or WeightingReducer"
            )
        if self.weight_cap and reducer.ignores_weights:
            others = " or ".join(repr(name) for name, entry in REDUCERS.items() if not entry.ignores_weights)
            raise InvalidInput(
                f"weight_cap is {self.weight_cap} with reducer {reducer.name!r}, which weighs all devices equally; "
                f"leave it out, or choose {others}"
            )
        return reducer

    def to_document(self) -> dict[str, Any]:
        """Return the settings as JSON values; `from_document` reads them."""
        return {**{name: getattr(self, name) for name in BOUNDS}, "reducer": self.reducer.to_document()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RobustSettings:
        """Read what `to_document` wrote."""
        bounds = {name: float(document[name]) for name in BOUNDS}
        reducer = Selection.from_document(document["reducer"], DEFAULT_REDUCER.name)
        return cls(**bounds, reducer=reducer)


def read_robust_settings(document: Mapping[str, Value]) -> RobustSettings:
    """Read the settings from a recipe's table; keys other than the bounds belong to the reducer."""
    settings = dict(document)
    bounds = {name: float(read_value(name, settings.pop(name), float)) for name in BOUNDS if name in settings}
    name = str(settings.pop("reducer", DEFAULT_REDUCER.name))
    return RobustSettings(**bounds, reducer=Selection(name, settings))


def _require_bound(name: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise InvalidInput(f"{name} is {value}; it must be a positive number, or 0 for none")


DEFAULT_BOUNDS = RobustSettings(weight_cap=1.25, clip_factor=1.25)
