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
from moonfed.validate import require_whole

BOUNDS = ("weight_cap", "clip_norm", "clip_factor")
MAX_BOUNDS_FROM = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustSettings:
    """The chosen parts; a bound of 0 and the reducer "mean" switch a part off.

    `bounds_from`: the number of updates in a round from which the bounds apply, since few updates say little about what
    is normal. `weight_cap`: the maximum weight of one device, as a share of all. `clip_norm`: the L2 norm of a device's
    change of the parameters above which the change is scaled down; `clip_factor`: the same bound as a multiple of the
    median of the round's norms. `reducer` takes the place of the weighted mean; `build_reducer` checks it, so that
    recorded settings stay readable while the package of a reducer is not installed.
    """

    weight_cap: float = 0.0
    clip_norm: float = 0.0
    clip_factor: float = 0.0
    bounds_from: int = 1
    reducer: Selection = DEFAULT_REDUCER

    def __post_init__(self) -> None:
        if not 0 <= self.weight_cap <= 1:
            raise InvalidInput(f"weight_cap is {self.weight_cap}; it must be a share from 0 to 1, such as 20%")
        _require_bound("clip_norm", self.clip_norm)
        _require_bound("clip_factor", self.clip_factor)
        require_whole("bounds_from", self.bounds_from, 1, MAX_BOUNDS_FROM)

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

    def for_updates(self, number: int) -> RobustSettings:
        """Return the settings of a round with that many updates."""
        return self if number >= self.bounds_from else RobustSettings(reducer=self.reducer)

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
        bounds = {name: getattr(self, name) for name in (*BOUNDS, "bounds_from")}
        return {**bounds, "reducer": self.reducer.to_document()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RobustSettings:
        """Read what `to_document` wrote."""
        bounds = {name: float(document[name]) for name in BOUNDS}
        reducer = Selection.from_document(document["reducer"], DEFAULT_REDUCER.name)
        return cls(**bounds, bounds_from=int(document["bounds_from"]), reducer=reducer)


def read_robust_settings(document: Mapping[str, Value]) -> RobustSettings:
    """Read the settings from a recipe's table; keys other than the bounds belong to the reducer."""
    settings = dict(document)
    bounds: dict[str, Any] = {
        name: float(read_value(name, settings.pop(name), float)) for name in BOUNDS if name in settings
    }
    if "bounds_from" in settings:
        bounds["bounds_from"] = read_value("bounds_from", settings.pop("bounds_from"), int)
    name = str(settings.pop("reducer", DEFAULT_REDUCER.name))
    return RobustSettings(**bounds, reducer=Selection(name, settings))


def _require_bound(name: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise InvalidInput(f"{name} is {value}; it must be a positive number, or 0 for none")


DEFAULT_BOUNDS = RobustSettings(weight_cap=0.3, clip_factor=3.0, bounds_from=5)
