"""The console's application: pages, static files and JSON, behind the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.actions import Actions
from moonfed.coordinator.console.assets import SHELL, Asset, load_assets
from moonfed.coordinator.console.fleet_api import FleetApi
from moonfed.coordinator.console.guard import Guard
from moonfed.coordinator.console.model_api import ModelApi
from moonfed.coordinator.console.responses import answer_error
from moonfed.coordinator.console.run_api import RunApi
from moonfed.coordinator.console.session_api import SessionApi
from moonfed.coordinator.console.settings import ConsoleSettings
from moonfed.errors import MoonfedError
from moonfed.transport.client import LOOPBACK

# The page reads its own path; every page is the same file, which holds nothing secret.
PAGES = (
    "/",
    "/login",
    "/runs/{run}",
    "/fleet",
    "/fleet/map",
    "/devices/{device}",
    "/models",
    "/models/{name}",
    "/models/{name}/{version:number}",
    "/audit",
)


def console_application(access: Access) -> Guard:
    """Return the application of a console."""
    assets = load_assets()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        for operator in access.operators.values():
            await operator.client.close()

    async def page(request: Request) -> Response:
        return assets[SHELL].response(request)

    application = Starlette(
        routes=[
            *(Route(path, page) for path in PAGES),
            Route("/static/{path:path}", _static(assets)),
            *SessionApi(access).routes(),
            *RunApi(access).routes(),
            *FleetApi(access).routes(),
            *ModelApi(access).routes(),
            *Actions(access).routes(),
        ],
        exception_handlers={MoonfedError: answer_error, 404: _not_found, 500: _broken},
        lifespan=lifespan,
    )
    application.router.redirect_slashes = False
    settings = access.settings
    secure = settings.certificate is not None
    return Guard(application, allowed_hosts(settings), secure=secure, proxy=access.proxy)


def allowed_hosts(settings: ConsoleSettings) -> list[str]:
    """Return the values of the Host header under which the console answers, with the port or for any port."""
    local = [f"[{host}]" if ":" in host else host for host in LOOPBACK]
    own = local if settings.host in LOOPBACK else [f"[{settings.host}]" if ":" in settings.host else settings.host]
    return [*(f"{host}:{settings.port}" for host in own), *settings.names]


def _static(assets: Mapping[str, Asset]) -> Callable[[Request], Awaitable[Response]]:
    async def static(request: Request) -> Response:
        found = assets.get(request.path_params["path"])
        return found.response(request) if found else JSONResponse({"error": "there is no such file"}, 404)

    return static


async def _not_found(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "there is no such page"}, 404)


async def _broken(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "internal error; the console's log has the details"}, 500)
