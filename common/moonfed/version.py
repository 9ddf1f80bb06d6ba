"""Versions of the release, the wire contract and the plan interface."""

RELEASE = "0.2.0"
CONTRACT_VERSION = "1.5"  # version of the gRPC services: major.minor
PLAN_INTERFACE = "torchscript/4"  # that a device must support to run a plan
GRAPH_PLAN_INTERFACE = "graph/1"  # or this one, if the plan has graphs
