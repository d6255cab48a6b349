"""How every model that is used and not trained is loaded: judges, labelers and encoders behind metrics and rewards."""

import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import torch
from torch import nn

__all__ = ["load_frozen", "process_device"]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@dataclass(frozen=True)
class _Loaded:
    """What a process has loaded, and the lock under which it loads.

    Held weakly: a model lives as long as a reward, labeler or metric that uses it. A cache of a fixed size would load
    a model anew in each step where a run has one model more than the cache has places, and keep models of rewards
    that are gone.
    """

    models: "WeakValueDictionary[Hashable, nn.Module]" = field(default_factory=WeakValueDictionary)
    # A build may itself load a frozen model.
    lock: threading.RLock = field(default_factory=threading.RLock)


# By process id: a forked child inherits a lock that a thread of its parent may hold for ever, and models on a device
# that it cannot use.
_loaded: dict[int, _Loaded] = {}


def load_frozen(
    build: Callable[..., ModuleT],
    *arguments: Hashable,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> ModuleT:
    """Build a model for inference, once a process for all who ask for the same.

    The model is in eval mode, takes no gradients and is whole on every process, also where the policy trains under
    DeepSpeed ZeRO-3, which partitions whatever is built meanwhile. The state of torch's random generators is left as
    it was, so a run whose reward loads late draws the same numbers as one whose reward is loaded already.

    Who asks must hold the model: when nobody does any more, it is freed. Loading is safe from several threads, but
    not beside another thread that builds the policy, for which ZeRO-3 would be off as well.

    Args:
        build: Makes the model, on the CPU. A function of a module: two lambdas are never the same.
        arguments: Arguments of ``build``; with it, ``dtype`` and ``device`` they tell models apart.
        dtype: Floating-point type of parameters and buffers; default: as built.
        device: Where the model runs; default: :func:`process_device`.

    Raises:
        RuntimeError: If parameters are partitioned or empty all the same, naming them.

    Example:
        >>> from torch import nn
        >>> model = load_frozen(nn.Linear, 4, 2, dtype=torch.bfloat16)
        >>> model.weight.dtype, model.weight.requires_grad, model.training
        (torch.bfloat16, False, False)
        >>> load_frozen(nn.Linear, 4, 2, dtype=torch.bfloat16) is model
        True
    """
    place = process_device(device)
    # setdefault: threads that come at once get the same lock.
    loaded = _loaded.setdefault(os.getpid(), _Loaded())
    key = (build, arguments, dtype, place)
    with loaded.lock:
        model = loaded.models.get(key)
        if model is None:
            # Out of inference mode, in which a reward may call: what is made there can be part of no graph.
            with torch.inference_mode(False), _random_state_kept(place), _unpartitioned():
                model = build(*arguments).to(device=place, dtype=dtype)
            _check_whole(model)
            loaded.models[key] = model.eval().requires_grad_(False)
    return cast(ModuleT, model)


def process_device(device: str | torch.device | None = None) -> torch.device:
    """The device that this process computes on.

    Args:
        device: A device to use in place of the default, which is CUDA where there is one, else the CPU. CUDA without
            a number is the process' own device: the current one where one was set, else that of ``LOCAL_RANK``, so
            that processes which a launcher started do not all use the first.

    Example:
        >>> process_device("cpu")
        device(type='cpu')
    """
    found = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if found != torch.device("cuda"):
        return found
    own = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    return torch.device("cuda", torch.cuda.current_device() or own)


@contextmanager
def _random_state_kept(device: torch.device) -> Iterator[None]:
    """Give the CPU's and the device's generators their state back."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


@contextmanager
def _unpartitioned() -> Iterator[None]:
    """Switch off what partitions models while they are built; nothing is imported that is not in use already."""
    with _without_trainers_zero3(), _outside_zero_init():
        yield


@contextmanager
def _without_trainers_zero3() -> Iterator[None]:
    """Hide the training arguments' DeepSpeed configuration, by which transformers partitions each model it makes."""
    integration: Any = sys.modules.get("transformers.integrations.deepspeed")
    if integration is None:
        yield
        return
    before = integration._hf_deepspeed_config_weak_ref
    integration.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        integration._hf_deepspeed_config_weak_ref = before


@contextmanager
def _outside_zero_init() -> Iterator[None]:
    """Leave a surrounding ``deepspeed.zero.Init``, which patches every module's constructor."""
    zero: Any = sys.modules.get("deepspeed.runtime.zero.partition_parameters")
    # Left already where one load is part of another: patching twice would lose the constructors.
    if zero is None or zero.top_level_context is None or not zero.top_level_context.patched:
        yield
        return
    zero.shutdown_init_context()
    try:
        yield
    finally:
        zero.restore_init_context()


def _check_whole(model: nn.Module) -> None:
    # DeepSpeed marks what it partitions by an attribute.
    split = [name for name, value in model.named_parameters() if value.numel() == 0 or "ds_id" in vars(value)]
    if split:
        raise RuntimeError(
            f"{type(model).__name__} was partitioned while it was loaded, so it cannot run on its own: DeepSpeed "
            f"holds, or left empty, {', '.join(split[:3])}{', ...' if len(split) > 3 else ''}. What load_frozen loads "
            "must be made inside `build`, not before"
        )
