# A moonfed device on x86-64 or 64-bit ARM that trains on the CPU. Build it from the repository root:
#   docker build --file deploy/cpu.Dockerfile --tag moonfed-client:cpu .
# TORCH selects another build of torch, such as the CPU-only one, gigabytes smaller: 'torch @ URL-OF-A-WHEEL'.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG TORCH="torch>=2.4"
RUN --mount=type=bind,source=constraints.txt,target=/tmp/constraints.txt \
    pip install --no-cache-dir --constraint /tmp/constraints.txt "$TORCH"
RUN --mount=type=bind,source=constraints.txt,target=/tmp/constraints.txt \
    pip install --no-cache-dir --constraint /tmp/constraints.txt \
    "cryptography>=42" "grpcio>=1.81.1" "numpy>=1.26" "protobuf>=6.30,<7" "typer>=0.12" "zstandard>=0.23" "pillow>=10"
COPY . /tmp/moonfed
RUN pip install --no-cache-dir --no-deps /tmp/moonfed && rm -r /tmp/moonfed && moonfed-client --version
RUN useradd --system --create-home --home-dir /var/lib/moonfed --shell /usr/sbin/nologin moonfed
USER moonfed
WORKDIR /var/lib/moonfed
VOLUME /var/lib/moonfed
STOPSIGNAL SIGTERM
ENTRYPOINT ["moonfed-client"]
CMD ["run", "--state", "/var/lib/moonfed", "--data", "/data"]
