"""A run's robust aggregation: bounds on the harm that a faulty or malicious device can do to the global model.

An update passes schema, finite numbers, weight cap, norm clip and reducer. The first two are checks of the upload; the
others are chosen in the run's settings and applied when a round closes, before the server rule. All are off by default,
as in the papers' methods; `run start` uses the defaults below.
"""

from __future__ import annotations

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.coordinator.aggregation.robust.reducers.mean import MeanReducer
from moonfed.coordinator.aggregation.robust.reducers.reducer import CoordinatewiseReducer, Reducer, WeightingReducer
from moonfed.errors import InvalidInput
from moonfed.registry import Selection

DEFAULT_WEIGHT_CAP = DEFAULT_CLIP_FACTOR = 1.25


def build_reducer(settings: RunSettings) -> Reducer:
    """Construct the reducer; InvalidInput if it is unknown, has a wrong base class or conflicts with a bound."""
    reducer = REDUCERS.build(Selection(settings.reducer, settings.reducer_settings))
    if not isinstance(reducer, CoordinatewiseReducer | WeightingReducer | MeanReducer):
        raise InvalidInput(
            f"reducer is {reducer.name!r}; its class must derive from CoordinatewiseReducer or WeightingReducer"
        )
    if settings.weight_cap and reducer.ignores_weights:
        others = " or ".join(repr(name) for name, entry in REDUCERS.items() if not entry.ignores_weights)
        raise InvalidInput(
            f"weight_cap is {settings.weight_cap} with reducer {reducer.name!r}, which weighs all devices equally; "
            f"leave it out, or choose {others}"
        )
    return reducer
