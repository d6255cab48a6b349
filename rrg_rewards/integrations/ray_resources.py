"""Check that the workers fit into a Ray cluster, which otherwise waits for resources without a message."""

import math
import warnings
from collections.abc import Mapping

__all__ = ["checked_workers"]

# Fractions of a GPU such as 1/3 must fill a whole one in spite of rounding.
_ROUNDING = 1e-6


def checked_workers(
    workers: int | None, each: Mapping[str, float], total: Mapping[str, float], free: Mapping[str, float]
) -> int:
    """Return the number of workers, after a check that the cluster can run all of them at once.

    Args:
        workers: Number of workers; ``None`` for as many as the whole cluster has resources for.
        each: Resources that each worker reserves, by Ray's names: ``{"CPU": 1, "GPU": 0.5}``.
        total: Resources of the cluster, as ``ray.cluster_resources()`` returns them.
        free: Resources that nothing else has reserved, as ``ray.available_resources()`` returns them.

    Raises:
        ValueError: If the whole cluster cannot hold the workers; some of them would wait forever.

    Warns:
        RuntimeWarning: If the free resources do not suffice. Workers then wait until others have ended.

    Example:
        >>> checked_workers(None, {"CPU": 1, "GPU": 0.5}, total={"CPU": 8.0, "GPU": 1.0}, free={"CPU": 8.0, "GPU": 1.0})
        2
        >>> checked_workers(3, {"CPU": 1}, total={"CPU": 2.0}, free={"CPU": 2.0})
        Traceback (most recent call last):
        ...
        ValueError: 3 workers need 3 CPU, but the Ray cluster has 2 CPU: workers can be at most 2. ...
    """
    each = {name: amount for name, amount in each.items() if amount}
    held, unreserved = ({name: resources.get(name, 0.0) for name in each} for resources in (total, free))
    fitting = _fitting(each, held)
    count = max(1, fitting) if workers is None else workers
    needed = f"{count} workers need" if count > 1 else "1 worker needs"
    needed = f"{needed} {_text({name: amount * count for name, amount in each.items()})}"
    if count > fitting:
        most = f"workers can be at most {fitting}" if fitting else "not even one worker fits"
        raise ValueError(
            f"{needed}, but the Ray cluster has {_text(held)}: {most}. Or start more nodes first; those that an "
            "autoscaler would add do not count"
        )
    if count > _fitting(each, unreserved):
        warnings.warn(
            f"{needed}, but only {_text(unreserved)} of the Ray cluster's {_text(held)} are free: scoring waits until "
            f"other work has ended. Number of workers that could start now: {_fitting(each, unreserved)}",
            RuntimeWarning,
            stacklevel=3,
        )
    return count


def _fitting(each: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """Return how many workers the resources suffice for."""
    return min(math.floor(resources[name] / amount + _ROUNDING) for name, amount in each.items())


def _text(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{round(amount, 3):g} {name}" for name, amount in resources.items())
