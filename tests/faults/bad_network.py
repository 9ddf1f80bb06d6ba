"""A network that delays, cuts and resets at random: a TCP proxy on its own event loop."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

TROUBLES = ("reset", "cut", "hang", "refuse", "none")
PIECE = 1 << 14  # bytes that are passed on, or not, at once


@dataclass
class BadNetwork:
    """Forwards connections to a port of this machine; most fail after some bytes.

    `reset` ends both sides with a TCP reset, `cut` drops what is under way and closes both as if all were well, `hang`
    passes nothing on for a while before it resets, `refuse` resets before a byte has passed.
    """

    target: int
    chance: random.Random
    seen: Counter[str] = field(default_factory=Counter)
    port: int = 0

    def __post_init__(self) -> None:
        self._troubles = self._all_troubles()

    def _all_troubles(self) -> Iterator[str]:
        while True:
            yield from self.chance.sample(TROUBLES, len(TROUBLES))

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection from beginning to end."""
        trouble = next(self._troubles)
        self.seen[trouble] += 1
        bytes_left = [self.chance.choice([3_000, 30_000, 300_000])] if trouble != "none" else [1 << 60]
        try:
            if trouble == "refuse":
                return
            there = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                both = self._pump(reader, there[1], bytes_left), self._pump(there[0], writer, bytes_left)
                pumps = [asyncio.ensure_future(pump) for pump in both]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in pumps:
                    pump.cancel()
                if trouble == "hang" and bytes_left[0] <= 0:
                    await asyncio.sleep(self.chance.uniform(0.1, 1.0))
            finally:
                _end(there[1], reset=trouble in ("reset", "hang"))
        except OSError:  # the coordinator is not there
            pass
        finally:
            _end(writer, reset=trouble in ("reset", "hang", "refuse"))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, bytes_left: list[int]) -> None:
        with suppress(OSError):
            while data := await source.read(PIECE):
                await asyncio.sleep(self.chance.choice([0.0, 0.0, 0.001, 0.02]))
                bytes_left[0] -= len(data)
                if bytes_left[0] <= 0:
                    sink.write(data[: len(data) // 2])  # the rest is lost
                    return
                sink.write(data)
                await sink.drain()


def _end(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset and (found := writer.get_extra_info("socket")):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


@contextmanager
def bad_network(target: int, seed: int) -> Iterator[BadNetwork]:
    """Provide a bad network in front of a port, at a port of its own."""
    network, started, ended = BadNetwork(target, random.Random(seed)), threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(loop := asyncio.get_running_loop())
        connections: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.add(loop.create_task(network.pass_on(reader, writer)))

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        network.port = server.sockets[0].getsockname()[1]
        started.set()
        await ended.wait()
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="network", daemon=True)
    thread.start()
    started.wait()
    try:
        yield network
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join()
