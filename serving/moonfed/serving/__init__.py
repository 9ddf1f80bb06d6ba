"""The inference server over a model repository: ONNX Runtime, without torch, onnx or the rest of export."""
