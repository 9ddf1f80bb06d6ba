# A moonfed device on an NVIDIA Jetson. Build it on the Jetson, or for linux/arm64, from the repository root:
#   docker build --file deploy/jetson.Dockerfile --build-arg BASE=IMAGE --tag moonfed-client:jetson .
# BASE: an image with NVIDIA's torch for this board's JetPack; it needs Python 3.10 and torch 2.4 or newer. The build must
# not replace that torch: PyPI's would not find the board's GPU.
ARG BASE
FROM ${BASE}
ENV PIP_NO_CACHE_DIR=1 NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=all
# Record torch, to verify below that it was not replaced, and pin numpy to the version that it was built with.
RUN python3 -c "import torch; print(torch.__file__, torch.__version__, torch.version.cuda)" > /tmp/torch.txt \
    && python3 -c "import numpy; print(f'numpy=={numpy.__version__}')" > /tmp/numpy.txt
RUN python3 -m pip install --constraint /tmp/numpy.txt \
    "cryptography>=42" "grpcio>=1.81.1" "numpy>=1.26" "protobuf>=6.33.5,<7" "typer>=0.16" "pillow>=10" \
    "backports.zstd>=1.0; python_version < '3.14'"
COPY . /tmp/moonfed
RUN python3 -m pip install --no-deps /tmp/moonfed && rm -r /tmp/moonfed \
    && python3 -c "import torch; print(torch.__file__, torch.__version__, torch.version.cuda)" | diff /tmp/torch.txt - \
    && python3 -c "import torch; assert torch.version.cuda, 'the torch of BASE has no CUDA'" \
    && rm /tmp/numpy.txt /tmp/torch.txt && moonfed-client --version
RUN useradd --system --groups video --create-home --home-dir /var/lib/moonfed --shell /usr/sbin/nologin moonfed
USER moonfed
WORKDIR /var/lib/moonfed
VOLUME /var/lib/moonfed
STOPSIGNAL SIGTERM
ENTRYPOINT ["moonfed-client"]
CMD ["run", "--state", "/var/lib/moonfed", "--data", "/data", "--device", "cuda"]
