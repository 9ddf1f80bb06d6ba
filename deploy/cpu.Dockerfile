# A moonfed device on x86-64 or 64-bit ARM that trains on the CPU. Build it from the repository root:
#   docker build --file deploy/cpu.Dockerfile --tag moonfed-client:cpu .
# BASE: name it with its digest, python@sha256:…, so that every build has the same one (docs/devices.md).
# TABLES=yes adds pyarrow, for CSV and Parquet files.
# TORCH selects another build of torch, such as the CPU-only one, gigabytes smaller: 'torch @ URL-OF-A-WHEEL#sha256=…'.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG TORCH=
ARG TABLES=
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
        pip install --no-cache-dir --require-hashes --requirement /tmp/requirements/torch-dependencies.txt \
        && pip install --no-cache-dir --no-deps "$TORCH"; \
    fi
COPY . /tmp/moonfed
RUN pip install --no-cache-dir --no-deps --no-build-isolation /tmp/moonfed && rm -r /tmp/moonfed \
    && moonfed-client --version
RUN useradd --system --create-home --home-dir /var/lib/moonfed --shell /usr/sbin/nologin moonfed
USER moonfed
WORKDIR /var/lib/moonfed
VOLUME /var/lib/moonfed
STOPSIGNAL SIGTERM
ENTRYPOINT ["moonfed-client"]
CMD ["run", "--state", "/var/lib/moonfed", "--data", "/data"]
