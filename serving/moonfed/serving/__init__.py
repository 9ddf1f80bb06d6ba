"""The inference server: a Triton model repository served over the Open Inference Protocol by ONNX Runtime alone."""

from __future__ import annotations

import moonfed.models.no_telemetry  # noqa: F401 - before onnxruntime
