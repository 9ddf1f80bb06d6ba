# moonfed's inference server on x86-64 or 64-bit ARM, without torch. Build it from the repository root:
#   docker build --file deploy/server.Dockerfile --tag moonfed-server .
#   moonfed-export api-key alice --file keys/api-keys
#   docker run --rm --publish 8000:8000 --publish 8001:8001 --volume "$PWD/models:/models:ro" \
#       --volume "$PWD/keys:/keys:ro" moonfed-server
# The container's user must be able to read the keys' hashes: chmod 644 keys/api-keys.
# BASE: name it with its digest, python@sha256:…, so that every build has the same one (docs/devices.md).
ARG BASE=python:3.11-slim
FROM ${BASE}
RUN --mount=type=bind,source=requirements,target=/tmp/requirements \
    pip install --no-cache-dir --require-hashes \
    --requirement /tmp/requirements/build.txt --requirement /tmp/requirements/server.txt
COPY . /tmp/moonfed
RUN pip install --no-cache-dir --no-deps --no-build-isolation /tmp/moonfed && rm -r /tmp/moonfed \
    && moonfed-export --version
RUN useradd --system --create-home --shell /usr/sbin/nologin moonfed
USER moonfed
STOPSIGNAL SIGTERM
ENTRYPOINT ["moonfed-export", "serve"]
CMD ["/models", "--host", "0.0.0.0", "--api-key-file", "/keys/api-keys"]
