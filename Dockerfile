# docker build -t paddock .
# docker run --rm -it --init --shm-size=1g -v "$PWD/runs:/home/paddock/runs" paddock
FROM python:3.13-slim AS build

# SWIG builds Box2D on ARM; the C compiler builds the native environments.
RUN apt-get update && apt-get install -y --no-install-recommends g++ swig && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir uv && uv venv /opt/paddock
ENV VIRTUAL_ENV=/opt/paddock UV_LINK_MODE=copy UV_NO_CACHE=1

# The dependencies have a layer of their own, which changes of the code do not rebuild.
WORKDIR /source
COPY pyproject.toml constraints.txt ./
# For a GPU: --build-arg TORCH_BACKEND=cu130, and docker run --gpus all.
ARG TORCH_BACKEND=cpu
RUN uv pip install --torch-backend "$TORCH_BACKEND" -c constraints.txt -r pyproject.toml

COPY README.md LICENSE setup.py paddock.py ./
COPY platform platform
COPY algos algos
COPY envs envs
COPY conf conf
RUN uv pip install --no-deps .

FROM python:3.13-slim
RUN useradd --create-home --uid 1000 paddock
COPY --from=build /opt/paddock /opt/paddock
ENV PATH=/opt/paddock/bin:$PATH
USER paddock
WORKDIR /home/paddock
RUN mkdir runs
CMD ["python", "-m", "paddock", "algo=es", "env=bipedal", "compute=dask"]
