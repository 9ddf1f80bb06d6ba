# A moonfed coordinator on x86-64 or 64-bit ARM, without torch. Build it from the repository root:
#   docker build --file deploy/coordinator.Dockerfile --tag moonfed-coordinator .
# deploy/compose.yaml runs it with PostgreSQL and an object store.
# BASE: name it with its digest, python@sha256:…, so that every build has the same one (docs/devices.md).
ARG BASE=python:3.11-slim
FROM ${BASE}
RUN --mount=type=bind,source=requirements,target=/tmp/requirements \
    pip install --no-cache-dir --require-hashes \
    --requirement /tmp/requirements/build.txt --requirement /tmp/requirements/coordinator.txt
COPY . /tmp/moonfed
RUN pip install --no-cache-dir --no-deps --no-build-isolation /tmp/moonfed && rm -r /tmp/moonfed \
    && moonfed-coordinator --version
# One malloc arena that returns freed memory: without these three the peak memory is 15 to 25 % higher.
ENV MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=16777216 MALLOC_MMAP_THRESHOLD_=8388608
RUN useradd --system --create-home --home-dir /var/lib/moonfed --shell /usr/sbin/nologin moonfed
USER moonfed
WORKDIR /var/lib/moonfed
VOLUME /var/lib/moonfed
EXPOSE 7443 7444
STOPSIGNAL SIGTERM
ENTRYPOINT ["moonfed-coordinator"]
CMD ["serve", "--state", "/var/lib/moonfed/state", "--host", "0.0.0.0"]
