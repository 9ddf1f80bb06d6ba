"""A call to a server with KServe's client, run by an interpreter that has it; prints one line of JSON."""

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

INPUTS = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def request(*, binary: bool, name: str = "linear") -> Any:
    tensor = InferInput("inputs", [2, 4], "FP32")
    tensor.set_data_from_numpy(INPUTS, binary_data=binary)
    return InferRequest(model_name=name, infer_inputs=[tensor], request_id="seven")


def told(response: Any) -> dict[str, Any]:
    output = response.outputs[0]
    return {
        "id": response.id,
        "model": response.model_name,
        "output": output.name,
        "hex": output.as_numpy().astype(np.float32).tobytes().hex(),
    }


async def by_http(address: str) -> dict[str, Any]:
    client, url = InferenceRESTClient(RESTConfig(protocol="v2")), f"http://{address}"
    found = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model_ready": await client.is_model_ready(url, "linear"),
        "other_ready": await client.is_model_ready(url, "unheard-of"),
        "json": told(await client.infer(url, request(binary=False), model_name="linear")),
        "binary": told(await client.infer(url, request(binary=True), model_name="linear")),
    }
    try:
        await client.infer(url, request(binary=False, name="unheard-of"), model_name="unheard-of")
    except Exception as error:  # KServe's is httpx's
        found["error"] = str(error)
    await client.close()
    return found


async def by_grpc(address: str) -> dict[str, Any]:
    client = InferenceGRPCClient(address)
    found = {
        "live": await client.is_server_live(),
        "ready": await client.is_server_ready(),
        "model_ready": await client.is_model_ready("linear"),
        "other_ready": await client.is_model_ready("unheard-of"),
        "values": told(await client.infer(request(binary=False))),
        "raw": told(await client.infer(request(binary=True))),
    }
    try:
        await client.infer(request(binary=True, name="unheard-of"))
    except Exception as error:  # KServe's is gRPC's
        found["error"] = str(error)
    await client.close()
    return found


async def main(http: str, grpc: str) -> None:
    print(json.dumps({"http": await by_http(http), "grpc": await by_grpc(grpc)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
