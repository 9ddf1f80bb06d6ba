"""Compiling: models, local objectives, training plans, bundles and ONNX graphs."""
