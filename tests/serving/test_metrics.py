from __future__ import annotations

import re

from moonfed.serving.metrics import exposition
from moonfed.serving.models.statistics import Duration, VersionStatistics

FOUND = VersionStatistics(
    name="cnn",
    version="3",
    inference_count=70,
    execution_count=9,
    pending=2,
    success=Duration(count=60, ns=5_000_999),
    fail=Duration(count=5, ns=4),
    queue=Duration(count=60, ns=1_000_000),
    compute_input=Duration(count=60, ns=2_000_000),
    compute_infer=Duration(count=60, ns=3_000_000),
    compute_output=Duration(count=60, ns=4_000_000),
    failures={"REJECTED": 4, "OTHER": 1},
)


def test_the_metrics_have_tritons_names_and_labels() -> None:
    text = exposition(lambda: [FOUND])().decode()
    lines = re.findall(r'^(nv_\w+)\{model="cnn",(?:reason="(\w+)",)?version="3"\} (\S+)$', text, re.MULTILINE)
    found = {(name, reason): float(value) for name, reason, value in lines}
    assert found == {
        ("nv_inference_request_success", ""): 60,
        ("nv_inference_request_failure", "REJECTED"): 4,
        ("nv_inference_request_failure", "CANCELED"): 0,
        ("nv_inference_request_failure", "BACKEND"): 0,
        ("nv_inference_request_failure", "OTHER"): 1,
        ("nv_inference_count", ""): 70,
        ("nv_inference_exec_count", ""): 9,
        ("nv_inference_request_duration_us", ""): 5000,
        ("nv_inference_queue_duration_us", ""): 1000,
        ("nv_inference_compute_input_duration_us", ""): 2000,
        ("nv_inference_compute_infer_duration_us", ""): 3000,
        ("nv_inference_compute_output_duration_us", ""): 4000,
        ("nv_inference_pending_request_count", ""): 2,
    }
    assert "# TYPE nv_inference_count counter\n" in text
    assert "# TYPE nv_inference_pending_request_count gauge\n" in text
    assert "process_resident_memory_bytes" in text


def test_metrics_are_those_of_the_moment() -> None:
    found = [FOUND]
    expose = exposition(lambda: found)
    assert b'nv_inference_count{model="cnn",version="3"} 70.0' in expose()
    found.clear()
    assert b"nv_inference_count{" not in expose()
