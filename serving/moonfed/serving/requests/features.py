"""The features of the inference protocol that this server has, and the error for those that it lacks."""

from __future__ import annotations

from moonfed.errors import MoonfedError

NAME = "moonfed"
EXTENSIONS = (
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "statistics",
    "binary_tensor_data",
)
LOAD_PARAMETERS = "load parameters are not supported: a model is loaded as it is in the repository"


class UnsupportedFeature(MoonfedError):
    """A feature that Triton offers and this server does not."""
