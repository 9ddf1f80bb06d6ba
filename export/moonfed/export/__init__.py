"""Compiling: networks, training plans, bundles and ONNX graphs; the evaluator; and the moonfed-export program."""
