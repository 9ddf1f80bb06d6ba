"""A simulation on Flower's engine, for a Python with flwr[simulation] and torch: `python -m flower_simulation`.

A Flower user's FedAvg: eager PyTorch, torch.optim.SGD, one thread per client, as many clients at a time as there are
cores. Network and hyperparameters are those of `benchmarks.fleet`; the environment variable FLOWER_SIMULATION holds the
parties' sizes, the epochs and the rounds as JSON, since Flower's workers import this module, too. Prints the seconds of
each round as a JSON list; a round includes scoring the new global model.
"""

from __future__ import annotations

import json
import os
import time
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

BATCH, LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 64, 0.01, 0.9, 1e-5
SIZES, EPOCHS, ROUNDS = json.loads(os.environ["FLOWER_SIMULATION"])
Arrays = tuple[torch.Tensor, torch.Tensor]  # inputs [N, 32, 32, 3] of bytes, labels [N]


def network() -> nn.Module:
    """Build the CNN of the MOON paper with its projection head."""
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        *(nn.Linear(84, 84), nn.ReLU(), nn.Linear(84, 256), nn.Linear(256, 10)),
    )


@lru_cache
def random_images(seed: int, number: int) -> Arrays:
    """Return random images; generated once in each process."""
    inputs = np.random.default_rng(seed).integers(0, 256, (number, 32, 32, 3), dtype=np.uint8)
    return torch.from_numpy(inputs), torch.arange(number) % 10


def scaled(inputs: torch.Tensor) -> torch.Tensor:
    return inputs.permute(0, 3, 1, 2).contiguous().to(torch.float32) / 255.0


client = ClientApp()


@client.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    party = int(context.node_config["partition-id"])
    inputs, labels = random_images(party, SIZES[party])
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY)
    steps = max(1, len(labels) // BATCH)
    for _ in range(EPOCHS):
        order = torch.randperm(len(labels))
        for batch in range(steps):
            index = order[batch * BATCH : (batch + 1) * BATCH]
            optimiser.zero_grad()
            loss = F.cross_entropy(model(scaled(inputs[index])), labels[index])
            torch.autograd.backward(loss)
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


server = ServerApp()


@server.main()  # type: ignore[untyped-decorator]
def serve(grid: Grid, context: Context) -> None:
    ends: list[float] = []
    model = network()
    untrained = [tensor.clone() for tensor in model.state_dict().values()]
    everybody = FedAvg(fraction_evaluate=0.0, min_train_nodes=len(SIZES), min_available_nodes=len(SIZES))

    def evaluate(round_: int, arrays: ArrayRecord) -> MetricRecord:
        """Score the global model on a fifth as many samples as there are to train on."""
        inputs, labels = random_images(len(SIZES), sum(SIZES) // 5)
        model.load_state_dict(arrays.to_torch_state_dict())
        if round_ and all(map(torch.equal, model.state_dict().values(), untrained)):
            raise RuntimeError("no client trained; their errors are above")
        with torch.no_grad():
            batches = [model(scaled(part)).argmax(1) for part in torch.split(inputs, 1000)]
        ends.append(time.perf_counter())
        return MetricRecord({"accuracy": float((torch.cat(batches) == labels).float().mean())})

    everybody.start(grid, ArrayRecord(model.state_dict()), num_rounds=ROUNDS, evaluate_fn=evaluate)
    print(json.dumps(np.diff(ends).tolist()), flush=True)


def main() -> None:
    one_core = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": os.cpu_count()}}
    run_simulation(server, client, len(SIZES), backend_config=one_core)


if __name__ == "__main__":
    import flower_simulation  # under this name Flower's workers find it

    flower_simulation.main()
