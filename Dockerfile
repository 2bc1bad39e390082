# lookalike for machines with NVIDIA GPUs; docs/install.md shows how to build and run it. BASE is any image with torch and pip.
ARG BASE=pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime

FROM ${BASE} AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM ${BASE}
# The Python of the image is the container's own. Its torch stays, and the CUDA bindings are those of torch's CUDA.
ENV PIP_BREAK_SYSTEM_PACKAGES=1
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    python3 -c 'import torch; print(f"torch=={torch.__version__}\ncuda-bindings=={torch.version.cuda.split(chr(46))[0]}.*")' \
        > /tmp/constraints.txt \
    && python3 -m pip install --no-cache-dir -c /tmp/constraints.txt \
        "lookalike[all,cuda] @ file://$(echo /wheel/lookalike-*.whl)" \
    && rm /tmp/constraints.txt \
    && install -d -m 1777 /work /cache
ENV HOME=/cache \
    USER=lookalike \
    NUMBA_CACHE_DIR=/cache/numba \
    PYTHONUNBUFFERED=1
USER 1000
WORKDIR /work
ENTRYPOINT ["lookalike"]
CMD ["--help"]
