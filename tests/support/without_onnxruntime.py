"""A patch for programs in tests, see `forked_process`: ONNX Runtime is not installed."""

from __future__ import annotations

from unittest.mock import patch

from moonfed.edge_client.state import model_files

patch.object(model_files, "find_spec", return_value=None).start()
