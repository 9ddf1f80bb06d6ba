"""A released model in a sandboxed process of its own. The agent uses this module, so it needs no numpy."""

from __future__ import annotations

from math import prod

from moonfed.edge_client.state.model_files import CHUNK, ModelFiles
from moonfed.sandbox.child_process import SILENCE_SECONDS, ChildProcess
from moonfed.sandbox.policy import Level
from moonfed.sandbox.sandboxed_process import JobDirectory, Sandbox, mapped_size, sandboxed_process


def model_process(
    model: ModelFiles,
    directory: JobDirectory,
    samples: int,
    results: int | None = None,
    *,
    mapped: tuple[int, ...] = (),
    accelerator: str,
    threads: int | None,
    level: Level,
    max_memory: int | None = None,
    silence_seconds: float = SILENCE_SECONDS,
) -> ChildProcess:
    """Return a process for the commands of `inference.task`; it loads the model for the first of them.

    `samples`: the descriptor of the file with the inputs, which the process inherits. `results`: that of the file which
    the command `predict` writes, in memory, because a file on disk costs milliseconds. `mapped`: those of files in
    which large samples stay.
    """
    directory.renew()
    for name, file in model.files.items():
        directory.add(file, name)
    sandbox = Sandbox(
        level=level,
        accelerator=accelerator,
        max_memory=max_memory,
        file_size=4 * CHUNK * prod(model.shape) + 1,
        mapped=mapped_size(mapped),
    )
    settings = {"directory": str(directory.input), "file": samples, "accelerator": accelerator, "threads": threads}
    settings |= {"results": results, **model.settings()}
    files = (samples, *mapped) if results is None else (samples, results)
    return sandboxed_process(model.task, settings, sandbox, directory, files, silence_seconds)
