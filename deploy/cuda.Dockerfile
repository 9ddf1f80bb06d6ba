# A moonfed device on x86-64 that trains on NVIDIA GPUs. Build it from the repository root:
#   docker build --file deploy/cuda.Dockerfile --tag moonfed-client:cuda .
# torch's packages include the CUDA libraries; the host provides the driver and NVIDIA's container toolkit.
# BASE: name it with its digest, python@sha256:…, so that every build has the same one (docs/devices.md).
# TABLES=yes adds pyarrow, for CSV and Parquet files.
# TORCH selects a build for another CUDA version, for example for an older driver: 'torch @ URL-OF-A-WHEEL#sha256=…'. What
# it needs, CUDA's libraries, is then installed without hashes.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG TORCH=
ARG TABLES=
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN --mount=type=bind,source=requirements,target=/tmp/requirements \
    pip install --no-cache-dir --require-hashes \
    --requirement /tmp/requirements/build.txt --requirement /tmp/requirements/device.txt
RUN --mount=type=bind,source=requirements,target=/tmp/requirements \
    if [ -n "$TABLES" ]; then \
        pip install --no-cache-dir --require-hashes --requirement /tmp/requirements/tables.txt; \
    fi
RUN --mount=type=bind,source=requirements,target=/tmp/requirements \
    if [ -z "$TORCH" ]; then \
        pip install --no-cache-dir --require-hashes --requirement /tmp/requirements/torch.txt; \
    else \
        pip install --no-cache-dir "$TORCH"; \
    fi \
    && python -c "import torch; assert torch.version.cuda, 'this torch has no CUDA'"
COPY . /tmp/moonfed
RUN pip install --no-cache-dir --no-deps --no-build-isolation /tmp/moonfed && rm -r /tmp/moonfed \
    && moonfed-client --version
RUN useradd --system --create-home --home-dir /var/lib/moonfed --shell /usr/sbin/nologin moonfed
USER moonfed
WORKDIR /var/lib/moonfed
VOLUME /var/lib/moonfed
STOPSIGNAL SIGTERM
ENTRYPOINT ["moonfed-client"]
CMD ["run", "--state", "/var/lib/moonfed", "--data", "/data", "--device", "cuda"]
