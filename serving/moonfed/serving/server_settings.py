"""The settings of an inference server, checked when they are built."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from moonfed.errors import InvalidInput
from moonfed.serving.models.manager import ServingSettings
from moonfed.serving.requests.limits import RequestLimits
from moonfed.validate import require_port


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The models and the ports of a server. Port 0 selects a free port."""

    repository: Path
    models: ServingSettings = field(default_factory=ServingSettings)
    host: str = "127.0.0.1"
    grpc_port: int = 8001
    http_port: int = 8000
    metrics_port: int = 8002
    tls_key: Path | None = None  # PEM; if given, every port accepts only TLS
    tls_certificate: Path | None = None  # PEM, with its chain after it
    tls_client_ca: Path | None = None  # PEM; if given, every client needs a certificate of this authority
    api_key_file: Path | None = None  # see `api_keys`; if given, every request except health checks needs a key
    max_request_bytes: int = 64 << 20
    max_concurrent_requests: int = 256  # inference requests over all protocols
    drain_seconds: float = 30.0
    limits: RequestLimits = field(default_factory=RequestLimits)

    def __post_init__(self) -> None:
        for name in ("grpc_port", "http_port", "metrics_port"):
            require_port(name, getattr(self, name))
        ports = [port for port in (self.grpc_port, self.http_port, self.metrics_port) if port]
        if len(set(ports)) < len(ports):
            three = f"{self.grpc_port}, {self.http_port} and {self.metrics_port}"
            raise InvalidInput(f"grpc_port, http_port and metrics_port are {three}; they must be three different ports")
        if (self.tls_key is None) != (self.tls_certificate is None):
            raise InvalidInput("tls_key and tls_certificate must be given together, or neither")
        if self.tls_client_ca is not None and self.tls_key is None:
            raise InvalidInput("tls_client_ca is given without tls_key and tls_certificate; it needs them")
        if not (self.is_local or self.tls_client_ca or self.api_key_file):
            raise InvalidInput(
                f"host is {self.host!r}, which other machines can reach; it must be combined with --api-key-file, with "
                "--tls-client-ca, or with both"
            )
        for name in ("max_request_bytes", "max_concurrent_requests"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if not 0 <= self.drain_seconds <= 3600:
            raise InvalidInput(f"drain_seconds is {self.drain_seconds}; it must be from 0 to 3600")

    @property
    def is_local(self) -> bool:
        """True if only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
