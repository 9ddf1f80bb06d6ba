"""The inference protocol on HTTP: every endpoint converts, calls the models, and converts back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from moonfed.errors import InvalidInput, ResourceExhausted
from moonfed.serving.http import codec, compression, metadata
from moonfed.serving.http.json_fields import parse_object
from moonfed.serving.http.pacing import BodyPacer
from moonfed.serving.models.manager import ModelManager
from moonfed.serving.requests.access import AccessControl
from moonfed.serving.requests.features import EXTENSIONS, LOAD_PARAMETERS, NAME, UnsupportedFeature
from moonfed.serving.requests.status_codes import status_of
from moonfed.serving.requests.thread_pool import ElasticThreadPool
from moonfed.version import RELEASE

HEADER_LENGTH = "Inference-Header-Content-Length"
_UNAUTHENTICATED = 401
_NOT_READY = 400  # as Triton and the protocol define it
_UNSUPPORTED = "shared memory, tracing, log settings and repository names are not supported by this server"
_MAX_MESSAGE = 2000  # characters, since it may quote the request
_LENGTH = re.compile(r"-?[0-9]{1,18}", re.ASCII)
Endpoint = Callable[[Request], Awaitable[Response]]
Check = Callable[[Request], None]


class _VersionConvertor(IntegerConvertor):
    regex = "[0-9]{1,18}"


register_url_convertor("version", _VersionConvertor())


class InferenceApp:
    """The endpoints of the Open Inference Protocol with Triton's extensions."""

    def __init__(
        self, models: ModelManager, inference: ElasticThreadPool, max_request_bytes: int, access: AccessControl
    ) -> None:
        self._models = models
        self._inference = inference
        self._limit = max_request_bytes
        self._access, self._pacer = access, BodyPacer()

    def application(self) -> Starlette:
        """Build the ASGI application."""
        model = "/v2/models/{model}"
        version = model + "/versions/{version:version}"
        repository = "/v2/repository"
        public: dict[str, Endpoint] = {"/v2/health/live": self.live, "/v2/health/ready": self.ready}
        gets: dict[str, Endpoint] = {"/v2": self.server_metadata, "/v2/models/stats": self.statistics}
        posts: dict[str, Endpoint] = {f"{repository}/index": self.index}
        changes: dict[str, Endpoint] = {
            f"{repository}/models/{{model}}/load": self.load,
            f"{repository}/models/{{model}}/unload": self.unload,
        }
        for path in (model, version):
            gets |= {
                path: self.model_metadata,
                f"{path}/ready": self.model_ready,
                f"{path}/config": self.model_config,
                f"{path}/stats": self.statistics,
            }
            posts[f"{path}/infer"] = self.infer
        unsupported = ["/v2/logging", "/v2/trace/setting", f"{model}/trace/setting", f"{repository}/{{name}}/index"]
        unsupported += [f"/v2/{kind}sharedmemory/{{rest:path}}" for kind in ("system", "cuda")]
        application = Starlette(
            routes=[
                *_routes(public, ["GET"], _permit),
                *_routes(gets, ["GET"], self._require_user),
                *_routes(posts, ["POST"], self._require_user),
                *_routes(changes, ["POST"], self._require_admin),
                *_routes(dict.fromkeys(unsupported, _unsupported), ["GET", "POST"], self._require_user),
            ],
            exception_handlers={HTTPException: _no_such_endpoint},
        )
        application.router.redirect_slashes = False
        return application

    def _require_user(self, request: Request) -> None:
        self._access.require_user(request.headers.get("Authorization"))

    def _require_admin(self, request: Request) -> None:
        self._access.require_admin(request.headers.get("Authorization"))

    async def live(self, _: Request) -> Response:
        """Report whether the server runs."""
        return _health("live", self._models.live())

    async def ready(self, _: Request) -> Response:
        """Report whether the server accepts requests."""
        return _health("ready", self._inference.accepting and self._models.ready())

    async def model_ready(self, request: Request) -> Response:
        """Report whether the server accepts requests for one model."""
        return _health("ready", self._inference.accepting and self._models.is_ready(*_model(request)))

    async def server_metadata(self, _: Request) -> Response:
        """Name the server, its release and its extensions."""
        return _json({"name": NAME, "version": RELEASE, "extensions": EXTENSIONS})

    async def model_metadata(self, request: Request) -> Response:
        """Describe a model's inputs and outputs."""
        return _json(metadata.model_metadata(await asyncio.to_thread(self._models.metadata, *_model(request))))

    async def model_config(self, request: Request) -> Response:
        """Return a model's completed configuration."""
        return _json(metadata.model_config(await asyncio.to_thread(self._models.config, *_model(request))))

    async def statistics(self, request: Request) -> Response:
        """Return the statistics of one version, of one model or of all."""
        return _json(metadata.model_statistics(await asyncio.to_thread(self._models.statistics, *_model(request))))

    async def index(self, request: Request) -> Response:
        """List the models of the repository."""
        document = _document(await self._body(request))
        ready_only = document.get("ready", False) is True
        return _json(metadata.repository_index(await asyncio.to_thread(self._models.index, ready_only=ready_only)))

    async def load(self, request: Request) -> Response:
        """Load a model."""
        if _document(await self._body(request)).get("parameters"):
            raise UnsupportedFeature(LOAD_PARAMETERS)
        await asyncio.to_thread(self._models.load, request.path_params["model"])
        return Response()

    async def unload(self, request: Request) -> Response:
        """Unload a model."""
        _document(await self._body(request))
        await asyncio.to_thread(self._models.unload, request.path_params["model"])
        return Response()

    async def infer(self, request: Request) -> Response:
        """Answer one inference request."""
        body = await self._body(request)
        self._inference.require_capacity()
        response: Response = await self._inference.call(self._infer, request, body)
        return response

    def _infer(self, request: Request, body: bytearray) -> Response:
        headers = request.headers
        length = headers.get(HEADER_LENGTH)
        if length is not None and not _LENGTH.fullmatch(length):
            raise InvalidInput(f"{HEADER_LENGTH} is {length[:32]!r}; it must be a number of bytes")
        encoding = headers.get("Content-Encoding", "identity")
        if encoding not in ("identity", *compression.ENCODINGS):
            raise UnsupportedFeature(
                f"Unsupported compression type {encoding!r}; it must be one of gzip, deflate, or absent"
            )
        content = compression.decompress(body, encoding, self._limit)
        decoded, output_encoding = codec.decode_request(content, int(length) if length else None, *_model(request))
        answer = codec.encode_response(self._models.infer(decoded), output_encoding)
        return _infer_response(answer, compression.accepted_encoding(headers.get("Accept-Encoding", "")))

    async def _body(self, request: Request) -> bytearray:
        """Read a body to its end even if it is too long: a client that is still writing does not read the answer."""
        content = bytearray()
        size = 0
        declared = int(request.headers.get("Content-Length", "0"))  # the parser has checked that it is a number
        too_long = declared > self._limit
        if not (too_long and request.headers.get("Expect")):
            async for part in request.stream():
                size += len(part)
                too_long = too_long or size > self._limit
                if too_long:
                    content.clear()
                else:
                    content += part
                await self._pacer.wait(len(part), size)
        if too_long:
            raise ResourceExhausted(f"the request is {max(size, declared)} bytes; at most {self._limit} are accepted")
        return content


def _infer_response(answer: codec.HttpBody, encoding: str) -> Response:
    content, headers = answer.content, {}
    if answer.header_length is not None:
        headers[HEADER_LENGTH] = str(answer.header_length)
    if encoding:
        content = compression.compress(content, encoding)
        headers["Content-Encoding"] = encoding
    kind = "application/json" if answer.header_length is None else "application/octet-stream"
    return Response(content, media_type=kind, headers=headers)


def _routes(endpoints: dict[str, Endpoint], methods: list[str], check: Check) -> list[Route]:
    return [Route(path, answer_errors(endpoint, check), methods=methods) for path, endpoint in endpoints.items()]


def answer_errors(endpoint: Endpoint, check: Check) -> Endpoint:
    """Make an endpoint check its caller, and convert its exceptions to HTTP statuses."""

    async def call(request: Request) -> Response:
        try:
            check(request)
            return await endpoint(request)
        except ClientDisconnect:
            return Response()  # nobody reads it
        except Exception as error:
            _, status, message = status_of(error)
            return _error(status, message)

    return call


def _permit(_: Request) -> None:
    """Permit every caller."""


async def _unsupported(_: Request) -> Response:
    raise UnsupportedFeature(_UNSUPPORTED)


async def _no_such_endpoint(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette passes nothing else
    return _error(error.status_code, f"{error.detail}: {request.method} {request.url.path}")


def _model(request: Request) -> tuple[str, str]:
    return request.path_params.get("model", ""), str(request.path_params.get("version", ""))


def _document(body: bytearray) -> dict[str, Any]:
    return parse_object(body or b"{}")


def _health(word: str, value: bool) -> Response:
    return _json({word: value}, 200 if value else _NOT_READY)


def _error(status: int, message: str) -> Response:
    response = _json({"error": message[:_MAX_MESSAGE]}, status)
    if status == _UNAUTHENTICATED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _json(document: object, status: int = 200) -> Response:
    return Response(json.dumps(document), status_code=status, media_type="application/json")
