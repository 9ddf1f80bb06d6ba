"""Opt out of ONNX Runtime's telemetry; every package that runs models imports this module before onnxruntime.

From release 1.29 on, ONNX Runtime for Linux reports file names, graph names and hashes of models to its vendor, and
writes an identifier of the device to the user's cache, unless this variable is set when it is first imported.
"""

from __future__ import annotations

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
