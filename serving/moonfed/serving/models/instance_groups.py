"""Instance groups: how many runs of a model may overlap, and on which device each runs."""

from __future__ import annotations

from dataclasses import replace

from tritonclient.grpc import model_config_pb2

from moonfed.errors import InvalidInput
from moonfed.models.onnx_runtime import CPU, CUDA, TENSORRT, SessionSettings
from moonfed.serving.models.config import Config
from moonfed.serving.models.onnx_session import OnnxSession

_Group = model_config_pb2.ModelInstanceGroup
DEFAULT_CPU_COUNT = 2  # Triton's for ONNX Runtime
_THREADS = "intra_op_thread_count"  # Triton's parameter


def complete_groups(config: Config, settings: SessionSettings) -> None:
    """Complete a config's instance groups: device kind, name, count and GPUs; raise InvalidInput."""
    if not config.instance_group:
        config.instance_group.add()
    for number, group in enumerate(config.instance_group):
        if group.kind == _Group.KIND_MODEL:
            raise InvalidInput(f"instance group kind is KIND_MODEL for {config.name}; it must be KIND_CPU or KIND_GPU")
        if group.kind == _Group.KIND_AUTO:
            group.kind = _Group.KIND_CPU if settings.provider == CPU and not group.gpus else _Group.KIND_GPU
        group.name = group.name or f"{config.name}_{number}"
        group.count = group.count or (DEFAULT_CPU_COUNT if group.kind == _Group.KIND_CPU else 1)
        if group.kind == _Group.KIND_GPU and not group.gpus:
            group.gpus.append(settings.device)


def open_sessions(graph: bytes, config: Config, settings: SessionSettings) -> list[OnnxSession]:
    """Open a session for each instance of a config whose groups are complete.

    Instances on the CPU share one session, whose runs may overlap; each on a GPU has its own, and so its own stream.
    """
    placements = _placements(config, replace(settings, intra_op_threads=_threads(config, settings)))
    shared: dict[SessionSettings, OnnxSession] = {}
    sessions = []
    for placement in placements:
        if placement.provider != CPU or placement not in shared:
            shared[placement] = OnnxSession(graph, placement)
        sessions.append(shared[placement])
    return sessions


def _placements(config: Config, settings: SessionSettings) -> list[SessionSettings]:
    placements: list[SessionSettings] = []
    for group in config.instance_group:
        if group.kind == _Group.KIND_CPU:
            placements += [replace(settings, provider=CPU, device=0)] * group.count
        else:
            provider = _gpu_provider(config, settings)
            placements += [replace(settings, provider=provider, device=gpu) for gpu in group.gpus] * group.count
    return placements


def _gpu_provider(config: Config, settings: SessionSettings) -> str:
    names = [accelerator.name for accelerator in config.optimization.execution_accelerators.gpu_execution_accelerator]
    for name in names:
        if name not in (CUDA, TENSORRT):
            raise InvalidInput(f"unknown Execution Accelerator '{name}' is requested for {config.name}")
    return TENSORRT if TENSORRT in names or settings.provider == TENSORRT else CUDA


def _threads(config: Config, settings: SessionSettings) -> int:
    if _THREADS not in config.parameters:
        return settings.intra_op_threads
    text = config.parameters[_THREADS].string_value
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"parameter {_THREADS} is {text!r} for {config.name}; it must be a number, 0 or more")
    return int(text)
