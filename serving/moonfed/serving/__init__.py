"""The inference server: a Triton model repository served over the Open Inference Protocol by ONNX Runtime alone."""
