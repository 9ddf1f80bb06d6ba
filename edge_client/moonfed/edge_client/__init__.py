"""The device: trains plans on local data, and predicts with releases."""

from __future__ import annotations

import moonfed.models.no_telemetry  # noqa: F401 - before onnxruntime
