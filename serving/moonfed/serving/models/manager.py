"""The models of a repository: it polls the files, loads versions, and passes each request to its version.

`infer` takes no lock shared by all models: it reads one dictionary that is replaced, never mutated (`loader.py`).
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from moonfed.errors import InvalidInput, MoonfedError, NotFound, Unavailable
from moonfed.models.onnx_runtime import SessionSettings
from moonfed.serving.models.config import PLATFORM, Config
from moonfed.serving.models.inference_request import IndexEntry, InferRequest, InferResponse, ModelMetadata
from moonfed.serving.models.loader import READY, Loader
from moonfed.serving.models.repository import model_names, scan_model
from moonfed.serving.models.statistics import VersionStatistics
from moonfed.serving.models.version import ModelVersion
from moonfed.signing.release_signature import read_release_key

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings:
    """The settings for loading and running the models of a repository."""

    provider: str = "cpu"  # for models whose config names no kind: "cpu", "cuda" or "tensorrt"
    intra_op_threads: int = 1
    explicit: bool = False  # load only on request, instead of everything in the repository
    poll_seconds: float = 0.0  # interval between scans of the repository; 0: never
    verify_keys: tuple[Path, ...] = ()  # public keys; if any, only versions signed with one of them are loaded

    def __post_init__(self) -> None:
        self.session()
        if self.poll_seconds < 0:
            raise InvalidInput(f"poll_seconds is {self.poll_seconds}; it must be 0 or more")
        if self.poll_seconds and self.explicit:
            raise InvalidInput(f"poll_seconds is {self.poll_seconds}; with explicit control it must be 0")

    def session(self) -> SessionSettings:
        """Return the settings of a session."""
        return SessionSettings(provider=self.provider, intra_op_threads=self.intra_op_threads)


class ModelManager:
    """The models of a repository. Every method is thread-safe."""

    def __init__(self, repository: Path, settings: ServingSettings) -> None:
        """Load the repository; a model that fails to load is in the index with its reason.

        Raises NotFound if the repository is not a directory.
        """
        if not repository.is_dir():
            raise NotFound(f"model repository {repository} is not a directory")
        self._repository = repository
        self._settings = settings
        self._changing = threading.Lock()
        self._loader = Loader(settings.session(), tuple(map(read_release_key, settings.verify_keys)))
        self._closing = threading.Event()
        if not settings.explicit:
            self.poll()
            if not self._loader.ready:
                _log.warning("%s has no model that can be served; it must contain NAME/VERSION/model.onnx", repository)
        if settings.poll_seconds:
            threading.Thread(target=self._poll_repeatedly, name="repository-poll", daemon=True).start()

    def infer(self, request: InferRequest) -> InferResponse:
        """Answer a request; blocks until the outputs are computed.

        Raises NotFound (unknown model or version), InvalidInput (the inputs do not fit), Overloaded (the queue is
        full), Unavailable (not ready, or too long in the queue), MoonfedError (ONNX Runtime failed).
        """
        version = self._loader.ready.get((request.model, request.version))
        return (version or self._missing(request.model, request.version)).infer(request)

    def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Describe a model's interface; raise NotFound or Unavailable."""
        found = self._version(model, version)
        ready = sorted(int(number) for name, number in self._loader.ready if name == model and number)
        versions = [int(version)] if version else ready
        return ModelMetadata(
            name=model,
            versions=tuple(map(str, versions)),
            platform=PLATFORM,
            inputs=found.inputs,
            outputs=found.outputs,
        )

    def config(self, model: str, version: str = "") -> Config:
        """Return the completed ModelConfig; raise NotFound or Unavailable."""
        return self._version(model, version).config

    def statistics(self, model: str = "", version: str = "") -> list[VersionStatistics]:
        """Return the statistics of one version, of a model, or of all; raise InvalidInput if it is not ready."""
        if model and not self.is_ready(model):
            raise InvalidInput(f"requested model '{model}' is not available")
        if model and not self.is_ready(model, version):
            raise InvalidInput(f"requested model version is not available for model '{model}'")
        ready = sorted(self._loader.ready.items(), key=lambda item: (item[0][0], item[0][1].zfill(20)))
        return [
            each.statistics()
            for (name, number), each in ready
            if number and model in ("", name) and version in ("", number)
        ]

    def index(self, *, ready_only: bool = False) -> list[IndexEntry]:
        """List the versions in the repository or loaded from it, with states and reasons."""
        entries = self._loader.index()
        known = {entry.name for entry in entries}
        with suppress(OSError):  # then only loaded models are known
            entries += [
                IndexEntry(name=name, version="", state="", reason="")
                for name in model_names(self._repository)
                if name not in known
            ]
        return [entry for entry in entries if entry.state == READY] if ready_only else entries

    def is_ready(self, model: str, version: str = "") -> bool:
        """Return whether a request to this version, by default to any version of the model, would be accepted."""
        return (model, version) in self._loader.ready

    def load(self, model: str) -> None:
        """Load a model, or its changed versions; raise MoonfedError if a version fails to load."""
        with self._changing:
            self._require_explicit()
            try:
                scanned = scan_model(self._repository, model)
            except (NotFound, OSError) as error:
                raise MoonfedError(f"failed to load '{model}', failed to poll from model repository") from error
            if reasons := self._loader.refresh(model, scanned, retry=True):
                raise InvalidInput(f"load failed for model '{model}': {'; '.join(reasons)}")

    def unload(self, model: str) -> None:
        """Accept no more requests for a model; those in flight finish. A model that is not loaded is ignored."""
        with self._changing:
            self._require_explicit()
            self._loader.unload(model)

    def poll(self) -> None:
        """Load and unload the repository's changed models."""
        with self._changing:
            if self._closing.is_set():
                return
            names = model_names(self._repository)
            for name in self._loader.names() - set(names):
                self._loader.remove(name)
            for name in names:
                self._poll_model(name)

    def _poll_model(self, name: str) -> None:
        try:
            self._loader.refresh(name, scan_model(self._repository, name))
        except NotFound:
            pass  # removed meanwhile; the next poll unloads it
        except InvalidInput as error:
            self._loader.record_failure(name, str(error))
        except OSError as error:  # one broken directory must not affect the others
            self._loader.record_failure(name, f"the directory of model '{name}' cannot be read: {error}")

    def live(self) -> bool:
        """Return whether the server runs."""
        return True

    def ready(self) -> bool:
        """Return whether the server accepts requests."""
        return not self._closing.is_set()

    def close(self) -> None:
        """Accept no more requests, and wait for those in flight."""
        self._closing.set()
        with self._changing:
            self._loader.unload_all()
        self._loader.wait_until_idle()

    def _version(self, model: str, version: str) -> ModelVersion:
        return self._loader.ready.get((model, version)) or self._missing(model, version)

    def _missing(self, model: str, version: str) -> ModelVersion:
        """Raise the reason why a version is not ready."""
        if self._closing.is_set():
            raise Unavailable("the server is shutting down")
        if version and not version.isdigit():
            raise InvalidInput(
                f"failed to get model version from specified version string '{version}', "
                "version should be an integral value > 0"
            )
        prefix = f"Request for unknown model: '{model}'"
        known = [entry.version for entry in self._loader.index() if entry.name == model]
        if not known:
            raise NotFound(f"{prefix} is not found")
        if not version:
            raise NotFound(f"{prefix} has no available versions")
        if version not in known:
            raise NotFound(f"{prefix} version {version} is not found")
        raise Unavailable(f"{prefix} version {version} is not at ready state")

    def _require_explicit(self) -> None:
        if self._closing.is_set():
            raise Unavailable("the server is shutting down")
        if not self._settings.explicit:
            raise Unavailable("explicit model load / unload is not allowed if polling is enabled")

    def _poll_repeatedly(self) -> None:
        while not self._closing.wait(self._settings.poll_seconds):
            self._poll_or_warn()

    def _poll_or_warn(self) -> None:
        try:
            self.poll()
        except OSError as error:
            _log.warning("the model repository cannot be read: %s", error)
