"""JSON documents of records, which commands print with `--json`, the console's pages read and notebooks can build."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache
from types import NoneType
from typing import Any

from moonfed.control.events import NAMES
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.run_settings import RunSettings
from moonfed.formatting import iso

_PLAIN = frozenset((str, int, bool, NoneType))


def document(value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return records as JSON values: times in ISO 8601 and UTC, and None for a number that is not finite.

    An event also has its kind, as `event`.
    """
    if type(value) in _PLAIN:  # most values, of which a fleet has thousands
        return value
    match value:
        case HeldOutScore():
            return value.to_json()  # with each class's precision and recall
        case RunSettings():
            return value.to_document()
        case datetime():
            return iso(value)
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {name: document(one) for name, one in value.items()}
        case tuple() | list():
            return [document(one) for one in value]
    kind: Any = type(value)
    if not hasattr(kind, "__dataclass_fields__"):
        return value
    shown = {name: document(getattr(value, name)) for name in _names(kind)}
    return {"event": NAMES[kind], **shown} if kind in NAMES else shown


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
