"""Compiling: networks, training plans, bundles and ONNX graphs; the evaluator; and the moonfed-export program."""

from __future__ import annotations

import moonfed.no_telemetry  # noqa: F401 - before onnxruntime
