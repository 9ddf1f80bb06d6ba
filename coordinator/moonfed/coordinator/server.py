"""Service of a state directory: open the ports, resume the runs, and stop cleanly on a signal."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.observer import SILENT, Observer
from moonfed.coordinator.pki.authority import Authority
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.coordinator.pki.operators import OperatorIdentities
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.connections import ConnectionGuard, Options, enrolment_options, fleet_options
from moonfed.coordinator.rpc.control_service import ControlService
from moonfed.coordinator.rpc.enrolment_service import EnrolmentService
from moonfed.coordinator.rpc.fleet_service import FleetService
from moonfed.coordinator.rpc.interceptor import ErrorInterceptor
from moonfed.coordinator.rpc.rate_limit import RateLimiter
from moonfed.coordinator.rpc.revocations import Revocations
from moonfed.coordinator.rpc.sockets import file_limit, raise_file_limit
from moonfed.coordinator.storage.opening import Storage, open_storage
from moonfed.coordinator.webhooks.receiver import Receiver
from moonfed.encodings import NUMBER_FORMATS
from moonfed.errors import AlreadyExists, InvalidInput
from moonfed.observability.tracing import exporting
from moonfed.server_rules import SERVER_RULES
from moonfed.transport.client import LOOPBACK, SERVER_OPTIONS, require_loopback
from moonfed.v1 import control_pb2_grpc, enrolment_pb2_grpc, fleet_pb2_grpc
from moonfed.validate import require_port

if TYPE_CHECKING:
    from moonfed.coordinator.metrics.exporter import Exporter

_log = logging.getLogger(__name__)
SERVICE = "moonfed-coordinator"  # its name in traces
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - the operator's choice, not our default
HOST = re.compile(r"[0-9A-Za-z_]([0-9A-Za-z_.-]{0,252})|[0-9A-Fa-f:.]{2,45}")  # the latter for IPv6
STOP_SECONDS = 2.0  # for calls in flight when the coordinator stops; devices resume them later


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The addresses and storage of a coordinator. Port 0 selects a free port.

    `names` are in the server certificate in addition to this machine's own; join tokens contain the first one.
    """

    state: Path
    database: str = ""  # PostgreSQL URL; empty: an SQLite file in the state directory
    blobs: str = ""  # object store URL; empty: files in the state directory
    disk_budget: int | None = None  # bytes that the state directory may hold
    backed_up: bool = False  # so that a PostgreSQL database may be migrated
    host: str = "127.0.0.1"
    fleet_port: int = 7443
    enrolment_port: int = 7444
    names: tuple[str, ...] = ()
    certificate_days: float = 90.0
    insecure: bool = False
    otlp_endpoint: str = ""  # of the collector of traces; empty: none
    metrics_port: int | None = None  # for Prometheus; None: no metrics
    metrics_host: str = "127.0.0.1"
    webhook: Receiver | None = None

    def __post_init__(self) -> None:
        if self.insecure:
            require_loopback(self.host)
        elif self.host not in LOOPBACK and not self.names:
            raise InvalidInput(
                f"name is not given; with host {self.host!r} it must be the name by which devices reach this machine, "
                "such as --name coordinator.example.org"
            )
        for name in self.names:
            if not HOST.fullmatch(name):
                raise InvalidInput(
                    field="name", value=name, allowed="a host's name or address, such as fleet.example.org"
                )
        for field, port in (("fleet_port", self.fleet_port), ("enrolment_port", self.enrolment_port)):
            require_port(field, port)
        if self.fleet_port == self.enrolment_port != 0 and not self.insecure:
            raise InvalidInput(
                field="enrolment_port", value=self.enrolment_port, rest="; it must differ from fleet_port"
            )
        if self.metrics_port is not None:
            require_port("metrics_port", self.metrics_port)
        if not 0 < self.certificate_days <= 3650:
            raise InvalidInput(
                field="certificate_days", value=self.certificate_days, allowed="above 0 and at most 3650"
            )

    @property
    def public_name(self) -> str:
        """The name by which devices reach this machine."""
        return self.names[0] if self.names else self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of a coordinator; without TLS there is no enrolment port, and metrics are optional."""

    fleet: int
    enrolment: int | None
    metrics: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A coordinator that is serving."""

    ports: Ports
    coordinator: Coordinator


def serve(settings: ServeSettings, ready: Callable[[Ports], None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is called once the ports accept calls.

    Raises VersionMismatch once a newer release has contracted the database's schema.
    """
    if settings.state.exists() and not settings.state.is_dir():
        raise InvalidInput(field="state", value=settings.state, allowed="a directory, or not exist yet")
    for registry in (SERVER_RULES, REDUCERS, NUMBER_FORMATS):
        registry.check()  # a broken package must not surface in a round
    os.umask(0o077)  # models and updates are private to this user
    raise_file_limit()  # every device needs a connection
    gc.freeze()  # imported modules remain: the garbage collector need not search them again and again
    # Opened outside the event loop, whose end waits for the threads that still use the database.
    with (
        exporting(settings.otlp_endpoint, SERVICE),
        open_storage(
            settings.state, settings.database, settings.blobs, settings.disk_budget, backed_up=settings.backed_up
        ) as storage,
    ):
        asyncio.run(_serve(settings, storage, ready))


async def _serve(settings: ServeSettings, storage: Storage, ready: Callable[[Ports], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(settings, storage) as serving:
        ready(serving.ports)
        reasons = [asyncio.create_task(reason) for reason in (stop.wait(), serving.coordinator.failure())]
        ended, _ = await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
        _log.info("stopping")
        for reason in ended:
            reason.result()


@asynccontextmanager
async def running(settings: ServeSettings, storage: Storage) -> AsyncIterator[Running]:
    """Serve until the context exits."""
    exporter = _exporter(settings, storage)
    observer = exporter.recorder if exporter else SILENT
    coordinator, metrics = Coordinator(storage, observer), ExitStack()
    directory = storage.directory
    authority = None if settings.insecure else await asyncio.to_thread(Authority, directory.authority)
    if authority:
        await asyncio.to_thread(storage.store.devices.require_authority, ref_of_bytes(authority.ca).sha256)
    files, revocations = file_limit(), Revocations()
    auditor = Auditor(storage.store.audit)
    interceptor = ErrorInterceptor(RateLimiter(), auditor, observer)
    fleet, enrolment = (_new_server(interceptor, limits(files)) for limits in (fleet_options, enrolment_options))
    guard = ConnectionGuard(files, revocations.rejection)
    authenticator = Authenticator(insecure=settings.insecure, connections=guard, rejection=revocations.rejection)
    for subscriber in (revocations.apply, guard.check_again, coordinator.devices.apply_registry):
        coordinator.registry.subscribe(subscriber)  # in this order
    await coordinator.registry.refresh()
    polls = [coordinator.registry.run(), coordinator.release_targets.run(), auditor.keep_summarising()]
    if settings.webhook:
        polls.append(await _open_webhook(storage, settings.webhook))
    tasks = [asyncio.create_task(work) for work in polls]
    try:
        ports = _open_ports(settings, authority, fleet, enrolment)
        guard.start([port for port in (ports.fleet, ports.enrolment) if port])
        if exporter and settings.metrics_port is not None:
            served = exporter.serving(coordinator, settings.metrics_host, settings.metrics_port)
            ports = replace(ports, metrics=metrics.enter_context(served))
        if authority is None:
            _add_services(fleet, coordinator, authenticator, auditor, observer)
        else:
            issuer = _enrolment(settings, storage, authority, ports)
            identities = await _own_identity(settings, storage, authority, ports, auditor)
            _add_services(fleet, coordinator, authenticator, auditor, observer, issuer, identities)
            enrolments = EnrolmentService(issuer, ports.fleet, auditor)
            enrolment_pb2_grpc.add_EnrolmentServicer_to_server(enrolments, enrolment)
            await _add_health(enrolment)
            await enrolment.start()
        await _add_health(fleet)
        await coordinator.open()
        await fleet.start()
        yield Running(ports=ports, coordinator=coordinator)
    finally:
        metrics.close()
        coordinator.dismiss()
        await asyncio.gather(fleet.stop(STOP_SECONDS), enrolment.stop(STOP_SECONDS))
        for task in tasks:
            task.cancel()
        await auditor.summarise(ended_only=False)
        await asyncio.to_thread(guard.stop)
        await coordinator.close()


def _exporter(settings: ServeSettings, storage: Storage) -> Exporter | None:
    if settings.metrics_port is None:
        return None
    from moonfed.coordinator.metrics.exporter import Exporter  # needs prometheus_client, which few coordinators load

    return Exporter(storage)


async def _open_webhook(storage: Storage, receiver: Receiver) -> Coroutine[Any, Any, None]:
    """Record events from now on, and return the work that delivers them."""
    from moonfed.coordinator.webhooks.sender import WebhookSender  # the HTTP client takes memory

    await asyncio.to_thread(storage.store.outbox.open)
    return WebhookSender(storage.store.outbox, receiver).run()


def _new_server(interceptor: ErrorInterceptor, limits: Options) -> grpc.aio.Server:
    return grpc.aio.server(interceptors=[interceptor], options=(*SERVER_OPTIONS, *limits))


def _open_ports(
    settings: ServeSettings, authority: Authority | None, fleet: grpc.aio.Server, enrolment: grpc.aio.Server
) -> Ports:
    if authority is None:
        return Ports(fleet=_bind(fleet, settings.host, settings.fleet_port, None), enrolment=None)
    own = () if settings.host in EVERYWHERE else (settings.host,)
    held = authority.server_credentials((*settings.names, *own))
    pair = [(held.key, held.certificate)]
    mutual = grpc.ssl_server_credentials(pair, root_certificates=held.ca, require_client_auth=True)
    return Ports(
        fleet=_bind(fleet, settings.host, settings.fleet_port, mutual),
        enrolment=_bind(enrolment, settings.host, settings.enrolment_port, grpc.ssl_server_credentials(pair)),
    )


def _bind(server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None) -> int:
    address = f"{_bracketed(host)}:{port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise AlreadyExists(
            f"cannot listen on {address}: the port is taken or needs privileges, or the address is not one of this "
            "machine's"
        ) from error


def _enrolment(settings: ServeSettings, storage: Storage, authority: Authority, ports: Ports) -> Enrolment:
    """Create the enrolment for the open ports."""
    return Enrolment(
        authority=authority,
        registry=storage.store.devices,
        address=f"{_bracketed(settings.public_name)}:{ports.enrolment}",
        certificate_life=timedelta(days=settings.certificate_days),
    )


async def _own_identity(
    settings: ServeSettings, storage: Storage, authority: Authority, ports: Ports, auditor: Auditor
) -> OperatorIdentities:
    """Return the issuer of operators' identities, after writing the state directory's own with the open port."""
    public = f"{_bracketed(settings.public_name)}:{ports.fleet}"
    own = "127.0.0.1" if settings.host in EVERYWHERE else _bracketed(settings.host)
    identities = OperatorIdentities(authority=authority, registry=storage.store.operators, address=public)
    issued = await asyncio.to_thread(identities.ensure_own, storage.directory.operator, f"{own}:{ports.fleet}")
    if issued:
        await auditor.issued_own(issued)
    return identities


def _add_services(
    server: grpc.aio.Server,
    coordinator: Coordinator,
    authenticator: Authenticator,
    auditor: Auditor,
    observer: Observer,
    enrolment: Enrolment | None = None,
    identities: OperatorIdentities | None = None,
) -> None:
    fleet = FleetService(coordinator.devices, coordinator.updates, authenticator, auditor, enrolment, observer)
    control = ControlService(
        coordinator.operators,
        coordinator.admin,
        coordinator.releases,
        authenticator,
        auditor,
        enrolment=enrolment,
        identities=identities,
    )
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    control_pb2_grpc.add_ControlServicer_to_server(control, server)


async def _add_health(server: grpc.aio.Server) -> None:
    servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing from its type stubs
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
