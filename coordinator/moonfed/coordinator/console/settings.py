"""The settings of a console; a combination that would expose it unprotected is rejected."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from moonfed.errors import InvalidInput
from moonfed.transport.client import LOOPBACK
from moonfed.validate import require, require_port

HOST = re.compile(r"[0-9A-Za-z_]([0-9A-Za-z_.-]{0,252})|[0-9A-Fa-f:.]{2,45}")  # the latter for IPv6
HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - the operator's choice, not our default


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The address of a console, and how it recognises operators. Port 0 selects a free port."""

    identities: tuple[Path, ...]  # an operator's each; the first is the one-time link's
    insecure: bool = False  # to a coordinator on this machine without TLS
    coordinator: str | None = None  # host:port; None: the identity's
    host: str = "127.0.0.1"
    port: int = 8480
    names: tuple[str, ...] = ()  # by which browsers reach the console, besides `host`
    certificate: Path | None = None
    key: Path | None = None
    password_file: Path | None = None
    trusted_proxy: str = ""  # the only address whose `user_header` is believed
    user_header: str = ""
    proxy_secret_file: Path | None = None  # the secret that the proxy adds, since others may use its address, too
    read_only: bool = False  # no actions, whatever the operator's role

    def __post_init__(self) -> None:
        require_port("port", self.port)
        for name in self.names:
            require(bool(HOST.fullmatch(name)), "name", name, "a host's name or address, such as fleet.example.org")
        self._require_complete()
        if self.insecure and self.host not in LOOPBACK:
            raise InvalidInput(
                field="host",
                value=self.host,
                rest=f"; without TLS to the coordinator (--insecure) it must be {', '.join(LOOPBACK)}",
            )
        if self.host not in LOOPBACK:
            self._require_protection()

    @property
    def scheme(self) -> str:
        """The scheme of the console's own address."""
        return "https" if self.certificate else "http"

    def _require_complete(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("tls-cert and tls-key must be given together, or neither")
        if len({bool(self.trusted_proxy), bool(self.user_header), bool(self.proxy_secret_file)}) > 1:
            raise InvalidInput(
                "trusted-proxy, proxy-user-header and proxy-secret-file must be given together, or none of them: "
                "without the secret, every program at the proxy's address could name an operator"
            )
        if self.trusted_proxy:
            try:
                ipaddress.ip_address(self.trusted_proxy)
            except ValueError as error:
                allowed = "the address of one proxy, such as 10.0.0.2"
                raise InvalidInput(field="trusted-proxy", value=self.trusted_proxy, allowed=allowed) from error
            valid = bool(HEADER.fullmatch(self.user_header))
            require(valid, "proxy-user-header", self.user_header, "a header's name, such as X-Remote-User")
        if self.trusted_proxy and self.password_file:
            raise InvalidInput("password-file and trusted-proxy exclude each other; give one of them")

    def _require_protection(self) -> None:
        if self.certificate is None:
            raise InvalidInput(
                field="host", value=self.host, rest="; beyond this machine the console needs --tls-cert and --tls-key"
            )
        if not self.password_file and not self.trusted_proxy:
            raise InvalidInput(
                field="host",
                value=self.host,
                rest=(
                    "; beyond this machine the console needs --password-file, or --trusted-proxy, "
                    "--proxy-user-header and --proxy-secret-file"
                ),
            )
        if self.host in EVERYWHERE and not self.names:
            raise InvalidInput(
                f"name is not given; with host {self.host!r} it must be the name by which browsers reach the console, "
                "such as --name console.example.org",
                field="name",
            )
