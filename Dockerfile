# The package with the tested versions, for CPU:
#   docker build --tag rrg-rewards .
# with a GPU, torch from PyPI, whose Linux wheels contain CUDA (the host needs NVIDIA's driver and container toolkit):
#   docker build --tag rrg-rewards:cuda --build-arg TORCH_INDEX=https://pypi.org/simple .
FROM python:3.11-slim-bookworm

# Where torch comes from; the other packages come from PyPI.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# The extra `all` without deepspeed, whose kernels need a CUDA compiler.
ARG EXTRAS=trl,lightning,judge,local-judge,labelers,models,train,plot,parquet,xlsx,serve,remote

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1

WORKDIR /opt/rrg-rewards
# torch in a layer of its own, which a change of the package does not download again.
COPY constraints.txt ./
RUN python -m pip install --no-deps --index-url "$TORCH_INDEX" -c constraints.txt torch
COPY pyproject.toml setup.cfg README.md LICENSE ./
COPY rrg_rewards rrg_rewards
COPY callbacks callbacks
COPY recipes recipes
RUN python -m pip install -c constraints.txt ".[$EXTRAS]"

# Reports are read from and written to a mounted folder, not by root.
RUN useradd --create-home --uid 1000 reader && mkdir /data && chown reader /data
USER 1000
WORKDIR /data
ENTRYPOINT ["rrg-rewards"]
CMD ["--help"]
