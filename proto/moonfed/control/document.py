"""JSON documents of records, which commands print with `--json`, the console's pages read and notebooks can build."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from moonfed.control.events import NAMES
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.run_settings import RunSettings
from moonfed.formatting import iso


def document(value: object) -> Any:  # noqa: ANN401 - JSON values
    """Return records as JSON values: times in ISO 8601 and UTC, and None for a number that is not finite.

    An event also has its kind, as `event`.
    """
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
            names = bool(value) and isinstance(value[0], str)  # of devices, by the thousands
            return list(value) if names else [document(one) for one in value]
    if is_dataclass(value):
        kind = {"event": NAMES[type(value)]} if type(value) in NAMES else {}
        return kind | {field.name: document(getattr(value, field.name)) for field in fields(value)}
    return value
