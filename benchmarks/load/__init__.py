"""Load generators, and the baselines that the coordinator and the inference server are compared with."""
