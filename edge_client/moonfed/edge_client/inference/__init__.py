"""Predictions with releases: by ONNX Runtime if it is installed, and otherwise by the plan in its sandbox."""
