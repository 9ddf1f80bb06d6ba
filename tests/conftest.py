"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The same examples everywhere, so that a commit passes or fails on every machine alike, however busy that one is.
settings.register_profile("moonfed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("moonfed")
