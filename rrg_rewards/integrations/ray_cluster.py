"""A Ray cluster: the connection to it, and how many workers it can run."""

import math
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.settings import SettingError

EXTRA = "ray"

WORKER_CPUS = 0.5
"""CPUs that a worker of a table reserves."""

# For the tasks that read and write a table, beside its workers.
_SPARE = {"CPU": 2.0}
# Fractions of a GPU such as 1/3 must fill a whole one in spite of rounding.
_ROUNDING = 1e-6
# Seconds after which resources that have not become free are in use by other work.
_FREED_SECONDS = 3.0


def local_options(cpus: int | None) -> dict[str, Any]:
    """Return the options of a cluster on this machine, whose processes import modules from the same folders."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return {"num_cpus": cpus, "include_dashboard": False, "runtime_env": {"env_vars": paths}}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where the workers of a table run.

    Args:
        workers: Number of workers; ``None`` or 0 for one for each CPU, or for as many as the GPUs suffice for.
        address: Address of a Ray cluster; ``None`` for a cluster on this machine.
        num_gpus: GPUs of each worker.
    """

    workers: int | None = None
    address: str | None = None
    num_gpus: float = 0

    @contextmanager
    def connected(self) -> Iterator[tuple[Any, int]]:
        """Connect to the cluster, or start one, and yield Ray and the number of workers.

        Raises:
            SettingError: If the cluster cannot hold the workers and the tasks beside them.

        Warns:
            RuntimeWarning: If other work has reserved what they need.
        """
        ray: Any = require("ray", extra=EXTRA)
        owns = not ray.is_initialized()
        starts = owns and self.address is None
        if owns:
            cpus = (self.workers or os.cpu_count() or 1) + int(_SPARE["CPU"])
            ray.init(log_to_driver=False, **(local_options(cpus) if starts else {"address": self.address}))
        try:
            total, each = ray.cluster_resources(), {"CPU": WORKER_CPUS, "GPU": self.num_gpus}
            # A CPU for each worker by default, although it reserves less.
            count = self.workers or max(1, _fitting({**each, "CPU": 1.0}, total, _SPARE))
            free = total if starts else free_resources(ray, each, count, _SPARE)
            yield ray, checked_workers(count, each, total, free, _SPARE)
        finally:
            if owns:
                ray.shutdown()


def checked_workers(
    workers: int | None,
    each: Mapping[str, float],
    total: Mapping[str, float],
    free: Mapping[str, float],
    spare: Mapping[str, float] = {},
) -> int:
    """Return the number of workers, after a check that the cluster can run all of them at once.

    Args:
        workers: Number of workers; ``None`` for as many as the whole cluster has resources for.
        each: Resources that each worker reserves, by Ray's names: ``{"CPU": 1, "GPU": 0.5}``.
        total: Resources of the cluster, as ``ray.cluster_resources()`` returns them.
        free: Resources that nothing else has reserved, as ``ray.available_resources()`` returns them.
        spare: Resources that the workers must leave to the tasks that read and write.

    Raises:
        SettingError: If the whole cluster cannot hold the workers; some of them would wait forever.

    Warns:
        RuntimeWarning: If the free resources do not suffice. Workers then wait until others have ended.

    Example:
        >>> cluster = {"CPU": 8.0, "GPU": 1.0}
        >>> checked_workers(None, {"CPU": 1, "GPU": 0.5}, total=cluster, free=cluster)
        2
        >>> checked_workers(3, {"CPU": 1}, total={"CPU": 2.0}, free={"CPU": 2.0})
        Traceback (most recent call last):
        ...
        rrg_rewards.utilities.settings.SettingError: 3 workers need 3 CPU, but the Ray cluster has 2 CPU: ...
    """
    fitting, ready = _fitting(each, total, spare), _fitting(each, free, spare)
    count = max(1, fitting) if workers is None else workers
    each = {name: amount for name, amount in each.items() if amount}
    held, unreserved = ({name: resources.get(name, 0.0) for name in each} for resources in (total, free))
    needed = f"{count} workers need" if count > 1 else "1 worker needs"
    needed = f"{needed} {_listed({name: amount * count for name, amount in each.items()})}"
    if spare:
        needed += f", and the tasks that read and write {_listed(spare)}"
    if count > fitting:
        most = f"workers can be at most {fitting}" if fitting else "not even one worker fits"
        raise SettingError(
            None,
            f"{needed}, but the Ray cluster has {_listed(held)}: {most}. Or start more nodes first; those that an "
            "autoscaler would add do not count",
        )
    if count > ready:
        warnings.warn(
            f"{needed}, but only {_listed(unreserved)} of the Ray cluster's {_listed(held)} are free: scoring waits "
            f"until other work has ended. Number of workers that could start now: {ready}",
            RuntimeWarning,
            stacklevel=3,
        )
    return count


def free_resources(
    cluster: Any, each: Mapping[str, float], workers: int | None, spare: Mapping[str, float] = {}
) -> Mapping[str, float]:
    """Return what no work has reserved. What ended workers had is free a moment later, which is waited for.

    Args:
        cluster: Ray, connected to the cluster.
        each: As for :func:`checked_workers`.
        workers: As for :func:`checked_workers`.
        spare: As for :func:`checked_workers`.
    """
    most = _fitting(each, cluster.cluster_resources(), spare)
    wanted = most if workers is None else min(workers, most)
    deadline = time.monotonic() + _FREED_SECONDS
    while True:
        free: Mapping[str, float] = cluster.available_resources()
        if _fitting(each, free, spare) >= wanted or time.monotonic() > deadline:
            return free
        time.sleep(0.1)


def _fitting(each: Mapping[str, float], resources: Mapping[str, float], spare: Mapping[str, float]) -> int:
    """Return how many workers the resources suffice for. A part of a GPU is a part of a single one."""
    numbers = []
    for name, amount in each.items():
        held = resources.get(name, 0.0) - spare.get(name, 0.0)
        if 0 < amount < 1:
            whole = math.floor(held + _ROUNDING)
            numbers.append(whole * math.floor(1 / amount + _ROUNDING) + math.floor((held - whole) / amount + _ROUNDING))
        elif amount:
            numbers.append(math.floor(held / amount + _ROUNDING))
    return max(0, min(numbers))


def _listed(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{round(amount, 3):g} {name}" for name, amount in resources.items())
