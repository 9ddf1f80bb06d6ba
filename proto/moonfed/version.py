"""What every part of moonfed agrees on: the wire contract, blobs, tensors, manifests, credentials and errors."""

RELEASE = "0.1.0"
CONTRACT_VERSION = "1.3"  # of the gRPC services: major.minor
PLAN_INTERFACE = "torchscript/3"  # what a device must understand to run a plan
