# moonfed's inference server on x86-64 or 64-bit ARM, without torch. Build it from the repository root:
#   docker build --file deploy/server.Dockerfile --tag moonfed-server .
#   docker run --rm --publish 8000:8000 --publish 8001:8001 --volume "$PWD/models:/models:ro" moonfed-server
ARG BASE=python:3.11-slim
FROM ${BASE}
# Install pyproject.toml's dependencies except torch, which only training needs.
RUN --mount=type=bind,source=constraints.txt,target=/tmp/constraints.txt \
    --mount=type=bind,source=pyproject.toml,target=/tmp/pyproject.toml \
    python -c "import tomllib; p = tomllib.load(open('/tmp/pyproject.toml', 'rb'))['project']; print(*(d for d in p['dependencies'] if not d.startswith('torch')), *p['optional-dependencies']['serve'], sep='\n')" > /tmp/needed.txt \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt --requirement /tmp/needed.txt && rm /tmp/needed.txt
COPY . /tmp/moonfed
RUN pip install --no-cache-dir --no-deps /tmp/moonfed && rm -r /tmp/moonfed && moonfed-export --version
RUN useradd --system --create-home --shell /usr/sbin/nologin moonfed
USER moonfed
STOPSIGNAL SIGTERM
ENTRYPOINT ["moonfed-export", "serve"]
CMD ["/models", "--host", "0.0.0.0"]
