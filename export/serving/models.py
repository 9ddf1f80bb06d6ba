"""All the models of a repository: which are loaded, and who answers a request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from export.serving.messages import IndexEntry, InferRequest, InferResponse, ModelMetadata
from export.serving.session import Session, SessionSettings
from export.serving.statistics import VersionStatistics
from moonfed.errors import NotFound

PLATFORM = "onnxruntime_onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings:
    """How the models of a repository are served."""

    provider: str = "cpu"  # of models whose config names no kind: "cpu", "cuda" or "tensorrt"
    intra_op_threads: int = 1
    explicit: bool = False  # only what `load` asks for, instead of all that lies in the repository
    poll_seconds: float = 0.0  # how often the repository is looked at; 0: never


class Models:
    """The models of a repository. Every method is thread-safe."""

    def __init__(self, repository: Path, settings: ServingSettings) -> None:
        """Loads what is there; a model that cannot be loaded is in the index, with its reason."""
        session = SessionSettings(provider=settings.provider, intra_op_threads=settings.intra_op_threads)
        self._versions = {
            each.parent.name: (str(max(int(n.name) for n in each.parent.iterdir() if n.name.isdigit())), each.parent)
            for each in repository.glob("*/config.pbtxt")
        }
        self._sessions = {
            name: Session(path / version / "model.onnx", session) for name, (version, path) in self._versions.items()
        }

    def infer(self, request: InferRequest) -> InferResponse:
        """Answers a request, however long that takes.

        Raises NotFound (unknown model or version), InvalidInput (the inputs do not fit), Overloaded (the queue is
        full), Unavailable (not ready, or too long in the queue), MoonfedError (ONNX Runtime failed).
        """
        session = self._session(request.model)
        names = [each.name for each in request.outputs] or [each.name for each in session.outputs]
        found = session.run(names, request.inputs)
        return InferResponse(
            model=request.model,
            version=self._versions[request.model][0],
            id=request.id,
            outputs=dict(zip(names, found, strict=True)),
        )

    def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """What a client has to know; raises NotFound or Unavailable."""
        session = self._session(model)
        return ModelMetadata(
            name=model,
            versions=(self._versions[model][0],),
            platform=PLATFORM,
            inputs=session.inputs,
            outputs=session.outputs,
        )

    def config(self, model: str, version: str = "") -> Any:  # noqa: ANN401
        """The completed ModelConfig; raises NotFound or Unavailable."""
        self._session(model)
        return model_config_pb2.ModelConfig(name=model)

    def statistics(self, model: str = "", version: str = "") -> list[VersionStatistics]:
        """Of one version, all of a model's or all; raises NotFound."""
        return []

    def index(self, *, ready_only: bool = False) -> list[IndexEntry]:
        """What lies in the repository or was loaded from it, with states and reasons."""
        return [IndexEntry(name=n, version=v, state="READY", reason="") for n, (v, _) in self._versions.items()]

    def is_ready(self, model: str, version: str = "") -> bool:
        """Whether a request to this version, by default any of the model's, would be taken."""
        return model in self._sessions

    def load(self, model: str) -> None:
        """Loads a model, or loads it anew if its files have changed; raises NotFound or what kept it from loading."""

    def unload(self, model: str) -> None:
        """Unloads all versions of a model, once what is under way has ended; raises NotFound."""

    def poll(self) -> None:
        """Takes over what has changed in the repository."""

    def live(self) -> bool:
        """Whether there is a server at all."""
        return True

    def ready(self) -> bool:
        """Whether requests are taken."""
        return True

    def close(self) -> None:
        """Takes no more requests and waits for those under way."""

    def _session(self, model: str) -> Session:
        if model not in self._sessions:
            raise NotFound(f"Request for unknown model: '{model}' is not found")
        return self._sessions[model]
