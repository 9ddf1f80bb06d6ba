"""The standard gRPC health service (grpc.health.v1), for load balancers and Kubernetes probes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from moonfed.serving.grpc.routing import INFERENCE_SERVICE


class HealthService(health.HealthServicer):
    """Health of the server and of the inference service: SERVING while `ready()` is true."""

    def __init__(self, ready: Callable[[], bool], watch_pool: ThreadPoolExecutor) -> None:
        super().__init__(experimental_non_blocking=True, experimental_thread_pool=watch_pool)
        self._is_ready = ready
        self.refresh()

    def refresh(self) -> None:
        """Evaluate `ready()` again and notify watchers."""
        status = health_pb2.HealthCheckResponse
        for name in ("", INFERENCE_SERVICE):
            self.set(name, status.SERVING if self._is_ready() else status.NOT_SERVING)

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Return the present health of a service."""
        self.refresh()
        return super().Check(request, context)
