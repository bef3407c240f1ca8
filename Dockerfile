# Matchlight as a container: `docker build --target cpu .` or `--target cuda .`; docs/guides/containers.md shows its use.
# TORCH_INDEX is PyTorch's own index of CPU wheels (its installation page names it) and keeps the CPU image small; left
# empty, torch comes from the usual index, whose Linux wheels carry CUDA.
ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY matchlight matchlight
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:${PYTHON} AS runtime
ENV PATH=/opt/matchlight/bin:$PATH \
    MATCHLIGHT_CACHE=/cache \
    PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/matchlight \
    && useradd --create-home --uid 10001 matchlight \
    && install -d -o matchlight -g matchlight /cache /data /index /runs
COPY constraints.txt /opt/matchlight/
# torch brings the Triton it needs; the pin is for the tests of the kernels on a CPU.
RUN sed -i '/^triton==/d' /opt/matchlight/constraints.txt
VOLUME ["/cache", "/data", "/index", "/runs"]
WORKDIR /home/matchlight
EXPOSE 8000
# The one address that answers without the token, and says nothing of the data.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/api/health', timeout=4)"]
ENTRYPOINT ["matchlight"]
# Listening beyond the container needs a token: -e MATCHLIGHT_TOKEN=...
CMD ["serve", "/index", "--host", "0.0.0.0", "--port", "8000"]

FROM runtime AS cpu
ARG TORCH_INDEX=""
RUN --mount=from=wheel,source=/dist,target=/dist \
    pip install --no-cache-dir -c /opt/matchlight/constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch \
    && pip install --no-cache-dir -c /opt/matchlight/constraints.txt "$(echo /dist/*.whl)[all,milvus]"
USER 10001

FROM runtime AS cuda
# The CUDA libraries come with torch; the driver comes from the host (`--gpus all`).
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN --mount=from=wheel,source=/dist,target=/dist \
    pip install --no-cache-dir -c /opt/matchlight/constraints.txt "$(echo /dist/*.whl)[all,milvus]"
USER 10001
