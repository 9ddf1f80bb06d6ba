"""`Predictor`: lets a Python program predict with a release on this device.

A version is loaded once. Each call looks at the file whose replacement switches the version, which takes microseconds;
if it was replaced, a thread loads the new version, tries it, and exchanges the two. Calls meanwhile are answered by the
old one, so they never wait, and a version that fails to load replaces nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from moonfed.bundle.manifest import InputSpec, output_shape
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import Inputs, check_inputs
from moonfed.edge_client.agent.compatibility import plan_interfaces
from moonfed.edge_client.inference.model import Model, Outputs
from moonfed.edge_client.inference.settings import InferenceSettings
from moonfed.edge_client.state.model_files import CHUNK, ModelFiles, files_of
from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.edge_client.state.repository import REPOSITORY
from moonfed.edge_client.state.state_version import require_readable_state
from moonfed.errors import InvalidInput, MoonfedError, NotFound, WrongState
from moonfed.plan.selection import AUTO
from moonfed.sandbox.policy import Level, require_level, require_unreadable

STATE_MARKERS = ("identity", "lock", REPOSITORY)  # a state directory has one of these at least
ATTEMPTS = 3  # at loading what is being replaced meanwhile

_log = logging.getLogger(__name__)
_Mark = tuple[int, int, int]  # of a file; another one has another


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A version that is ready to answer."""

    version: int
    input: InputSpec
    target: TargetSpec
    threshold: float | None
    model: Model


class Predictor:
    """The release of one name on this device. Calls may come from any thread."""

    def __init__(
        self,
        state: str | os.PathLike[str],
        model: str = "",
        *,
        device: str = "cpu",
        threads: int | None = None,
        sandbox: Level = "strict",
        plan_format: str = AUTO,
    ) -> None:
        """Load the version that the device predicts with, or if that fails the previous one.

        `state`: the device's state directory. `model`: the release's name; it may be left out if there is only one.
        `device`: cpu, cuda, or tensorrt (with ONNX Runtime). `threads`: None lets the runtime choose. `sandbox` and
        `plan_format` (auto, torchscript or graph): of the plan, where ONNX Runtime is not installed. Raises NotFound if
        there is no such release, InvalidInput for a wrong argument, and MoonfedError if no version can be loaded.
        """
        self._state = Path(state)
        self._settings = InferenceSettings(device=device, threads=threads, sandbox=sandbox, plan_format=plan_format)
        _require_state(self._state)
        self._store = ReleaseStore(self._state)
        self.name = _chosen(self._store, model)
        self._config = self._store.config_file(self.name)
        self._lock = threading.Lock()
        self._loader: threading.Thread | None = None
        self._closed = False
        self._mark = _mark(self._config)
        self._loaded = self._load_best()

    @property
    def version(self) -> int:
        """The version that answers."""
        return self._loaded.version

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the probabilities."""
        return self._loaded.target.names

    @property
    def target(self) -> TargetSpec:
        """The kind, names and shape of the predictions."""
        return self._loaded.target

    @property
    def threshold(self) -> float | None:
        """The score above which a sample is unusual; None unless the model gives scores."""
        return self._loaded.threshold

    @property
    def input(self) -> InputSpec:
        """The form of a sample."""
        return self._loaded.input

    def predict(self, inputs: Any) -> Outputs:  # noqa: ANN401 - whatever numpy converts
        """Return the probabilities [N, C], values or scores of samples [N, …] in the form of `input`.

        All rows are answers of one version. Raises InvalidInput for inputs of another form.
        """
        return self.answer(inputs)[1]

    __call__ = predict

    def answer(self, inputs: Any) -> tuple[int, Outputs]:  # noqa: ANN401
        """Return the version that answers, and its outputs."""
        if self._closed:
            raise WrongState("the predictor was closed")
        self._notice()
        while True:
            loaded = self._loaded
            checked = check_inputs(inputs, loaded.input, "the call")
            try:
                return loaded.version, _in_chunks(loaded, checked)
            except WrongState:
                if self._closed or loaded is self._loaded:
                    raise

    def stream(self, inputs: Inputs) -> tuple[int, Iterator[tuple[slice, Outputs]]]:
        """Return the version that answers, and its outputs for parts of the samples, one after the other.

        Unlike `answer`, this does not look for a new version.
        """
        loaded = self._loaded
        checked = check_inputs(inputs, loaded.input, "the call")
        parts = [slice(start, start + CHUNK) for start in range(0, len(checked), CHUNK)]
        return loaded.version, ((part, loaded.model.predict(checked[part])) for part in parts)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until a new version that was noticed answers, or has failed to load."""
        self._notice()
        loader = self._loader
        if loader is not None:
            loader.join(seconds)

    def close(self) -> None:
        """Free the model; calls raise WrongState from now on."""
        with self._lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        if self._loader is not None:
            self._loader.join()
        self._loaded.model.close()

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _notice(self) -> None:
        """Start to load another version if the device has switched."""
        if _mark(self._config) == self._mark:
            return
        with self._lock:
            mark = _mark(self._config)
            loading = self._loader is not None and self._loader.is_alive()
            if self._closed or loading or mark == self._mark:
                return
            self._mark = mark
            self._loader = threading.Thread(target=self._exchange, name="predictor-loader", daemon=True)
            self._loader.start()

    def _exchange(self) -> None:
        try:
            version = self._store.current(self.name)
            if version == self._loaded.version:
                return
            if not version:
                _log.warning("model %s was removed from this device; this program keeps using version %d", self.name,
                            self._loaded.version)  # fmt: skip
                return
            loaded = self._load(version)
        except Exception as error:  # whatever a runtime raises; the version in use stays
            _log.warning("model %s: version %d stays in use, because the new one cannot be loaded: %s", self.name,
                        self._loaded.version, error)  # fmt: skip
            return
        before, self._loaded = self._loaded, loaded
        before.model.close()

    def _load_best(self) -> _Loaded:
        """Load the current version, or the previous one if that fails."""
        for attempt in range(1, ATTEMPTS + 1):
            version = 0
            try:
                version = self._store.current(self.name)
                return self._load(version)
            except MoonfedError as error:
                if self._switched(version) and attempt < ATTEMPTS:
                    continue
                return self._load_previous(version, error)
        raise NotFound(f"{self._state} has no model {self.name!r} any longer")

    def _switched(self, version: int) -> bool:
        """Return whether the device has switched to another version meanwhile."""
        try:
            return self._store.current(self.name) not in (0, version)
        except MoonfedError:
            return False

    def _load_previous(self, version: int, error: MoonfedError) -> _Loaded:
        previous = self._store.previous(self.name)
        if not previous:
            raise error
        _log.warning("model %s: using version %d, because version %d cannot be loaded: %s", self.name, previous,
                    version, error)  # fmt: skip
        return self._load(previous)

    def _load(self, version: int) -> _Loaded:
        """Load a version and compute one answer."""
        stored = self._store.open(self.name, version)
        files = files_of(stored, plan_interfaces(self._settings.plan_format))
        model = _open_model(files, self._state, self._settings)
        try:
            model.predict(np.zeros((1, *files.input.shape), files.input.dtype))
        except BaseException:
            model.close()
            raise
        return _Loaded(version, files.input, files.target, stored.manifest.threshold, model)


def _open_model(files: ModelFiles, state: Path, settings: InferenceSettings) -> Model:
    """Open a model in ONNX Runtime if it is installed, and otherwise its plan in the sandbox."""
    if files.plan is None:
        from moonfed.edge_client.inference.onnx_model import OnnxModel, own_tensors
        from moonfed.models.onnx_runtime import SessionSettings

        chosen = SessionSettings(provider=settings.device, intra_op_threads=settings.threads or 0)
        own = own_tensors(files.own, files.personal)
        return OnnxModel(files.onnx, files.target.output, files.shape, chosen, own)
    from moonfed.edge_client.inference.plan_model import SandboxedModel

    if settings.device == "tensorrt":
        raise InvalidInput("device is 'tensorrt'; it must be 'cpu' or 'cuda' without ONNX Runtime")
    require_level(settings.sandbox)
    if settings.sandbox == "strict":
        require_unreadable(state)
    return SandboxedModel(files, state, settings)


def _in_chunks(loaded: _Loaded, inputs: Inputs) -> Outputs:
    if 0 < len(inputs) <= CHUNK:
        return loaded.model.predict(inputs)
    starts = range(0, len(inputs), CHUNK)
    none = np.zeros((0, *output_shape(loaded.input, loaded.target)), np.float32)
    return np.concatenate([none, *(loaded.model.predict(inputs[start : start + CHUNK]) for start in starts)])


def _mark(file: Path) -> _Mark:
    """Return what differs when a file is replaced; zeros if it is missing."""
    try:
        found = os.stat(file)  # noqa: PTH116 - in each call
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_ino, found.st_size


def _chosen(store: ReleaseStore, name: str) -> str:
    """Return the name of the release to predict with; raise NotFound with the next step."""
    names = store.names()
    if not names:
        raise NotFound(
            "this device has no release yet; an operator deploys one with: "
            "moonfed-coordinator release deploy NAME --version N",
            field="release",
        )
    if name in names:
        return name
    if not name and len(names) == 1:
        return names[0]
    if not name:
        raise InvalidInput(f"model is missing; it must be one of {', '.join(names)}", field="model")
    raise NotFound(field="model", value=name, rest=f"; this device has {', '.join(names)}")


def _require_state(state: Path) -> None:
    if not state.exists():
        raise NotFound(field="state", value=state, rest="; there is no such directory")
    if not any((state / name).exists() for name in STATE_MARKERS):
        raise InvalidInput(field="state", value=state, rest=", which is not a state directory of `moonfed-client`")
    require_readable_state(state)
