"""Loading of models for inference: judges, labelers and encoders of metrics and rewards."""

import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import torch
from torch import nn

from rrg_rewards.utilities.backend import MODEL_REFUSAL, Backend
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.precision import own_precision
from rrg_rewards.utilities.settings import SettingError

ModuleT = TypeVar("ModuleT", bound=nn.Module)

# Of a saved tokenizer, at least one exists.
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


@dataclass(frozen=True)
class _Loaded:
    """Models that a process has loaded, and the lock for loading.

    References are weak: a model lives as long as a reward, labeler or metric that uses it. A cache of fixed size would
    keep the models of deleted rewards, and could reload models in every step.
    """

    models: "WeakValueDictionary[Hashable, nn.Module]" = field(default_factory=WeakValueDictionary)
    # Reentrant, because a build may load another frozen model.
    lock: threading.RLock = field(default_factory=threading.RLock)


# The key is the process id, because a forked child inherits locks that no thread will release, and models on a device
# that it cannot use.
_loaded: dict[int, _Loaded] = {}


def load_frozen(
    build: Callable[..., ModuleT],
    *arguments: Hashable,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> ModuleT:
    """Build a model for inference, once per process and set of arguments.

    The model is in eval mode, without gradients, and complete on every process. This holds under DeepSpeed ZeRO-3, too,
    which otherwise partitions every model that is built. The state of torch's random generators is restored, so the
    time of loading does not change the random numbers of a run. Torch's default type, which trainers change in their
    steps, has no effect on the model.

    Keep a reference to the model; otherwise it is freed. Loading is thread-safe, but no other thread may build the
    policy at the same time, because ZeRO-3 is switched off for it, too.

    Args:
        build: Function that makes the model on the CPU. Use a module-level function; two lambdas are never equal.
        arguments: Arguments of ``build``. The model is identified by ``build``, ``arguments``, ``dtype`` and
            ``device``.
        dtype: Floating-point type of parameters and buffers; default: as built.
        device: Device of the model; default: :func:`process_device`.

    Raises:
        RuntimeError: If parameters are partitioned or empty nevertheless, naming them.

    Example:
        >>> from torch import nn
        >>> model = load_frozen(nn.Linear, 4, 2, dtype=torch.bfloat16)
        >>> model.weight.dtype, model.weight.requires_grad, model.training
        (torch.bfloat16, False, False)
        >>> load_frozen(nn.Linear, 4, 2, dtype=torch.bfloat16) is model
        True
    """
    place = process_device(device)
    # `setdefault`, so that concurrent threads get the same lock.
    loaded = _loaded.setdefault(os.getpid(), _Loaded())
    key = (build, arguments, dtype, place)
    with loaded.lock:
        model = loaded.models.get(key)
        if model is None:
            # Leave inference mode, because tensors that are made in it cannot be part of an autograd graph.
            with torch.inference_mode(False), own_precision(), _random_state_kept(place), _unpartitioned():
                model = build(*arguments).to(device=place, dtype=dtype)
            _check_whole(model)
            loaded.models[key] = model.eval().requires_grad_(False)
    return cast(ModuleT, model)


class PretrainedModel(Backend):
    """A frozen model of transformers with its tokenizer, loaded at the first use and shared in the process.

    No data leave the process, and code that comes with a model is never executed.

    Args:
        name: Folder or Hub id.
        revision: Revision of a Hub id.
        device: Device of the model; default: :func:`process_device`.
        dtype: Type of the weights, such as ``"bfloat16"``, or ``"auto"`` for that of the files.

    Raises:
        FileNotFoundError: If ``name`` is a path that does not exist.
        ModuleNotFoundError: When the model is loaded, if transformers is not installed, naming the pip command.
    """

    def __init__(
        self,
        name: str,
        revision: str | None = None,
        device: str | None = None,
        dtype: str = "float32",
    ) -> None:
        check_model_source(name, "model")
        self.name = str(name)
        self.revision = revision
        self.device = device
        self.dtype = dtype

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: each would load the model."""
        return MODEL_REFUSAL

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the constructor."""
        return {name: getattr(self, name) for name in ("name", "revision", "device", "dtype")}

    @property
    def source(self) -> str:
        """Name and revision of the model, for signatures."""
        return self.name if self.revision is None else f"{self.name}@{self.revision}"

    @cached_property
    def model(self) -> Any:
        """The model."""
        dtype = None if self.dtype == "auto" else getattr(torch, self.dtype)
        built = (self.name, self.revision, "auto" if dtype is None else torch.float32)
        return load_frozen(_build_pretrained, *built, dtype=dtype, device=self.device)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer."""
        return require("transformers", extra="models").AutoTokenizer.from_pretrained(
            self.name, revision=self.revision, trust_remote_code=False
        )


def read_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return a floating-point type, given as such or by its name.

    Raises:
        SettingError: If it is another type, or no type.

    Example:
        >>> read_dtype("bfloat16")
        torch.bfloat16
    """
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise SettingError("dtype", f"must be a floating-point type of torch or its name, got {dtype!r}")
    return found


def read_device_map(device_map: Any) -> torch.device | None:
    """Return the one device of transformers' ``device_map``; ``None`` to leave the model where it is.

    Raises:
        SettingError: If it divides the model among devices.

    Example:
        >>> read_device_map({"": "cpu"})
        device(type='cpu')
    """
    if device_map is None:
        return None
    device: Any = device_map[""] if isinstance(device_map, Mapping) and device_map.keys() == {""} else device_map
    try:
        return process_device() if device == "auto" else torch.device(device)
    except (RuntimeError, TypeError):
        raise SettingError("device_map", f"must be one device, or auto, got {device_map!r}") from None


def load_tokenizer(source: str | Path, revision: str | None = None, **hub: Any) -> Any:
    """Load the tokenizer from a folder or the Hub; return ``None`` if the folder has none."""
    if Path(source).is_dir() and not any((Path(source) / name).is_file() for name in _TOKENIZER_FILES):
        return None
    transformers = require("transformers", extra="models")
    return transformers.AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=False, **hub)


def _build_pretrained(name: str, revision: str | None, dtype: str | torch.dtype) -> Any:
    made = require("transformers", extra="models").AutoModel
    return made.from_pretrained(name, revision=revision, dtype=dtype, trust_remote_code=False)


def process_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device of this process.

    Args:
        device: A device; default: CUDA if it is available, else the CPU. CUDA without an index is the current device if
            one was set, else the device with the index ``LOCAL_RANK``, so that the processes of a launcher use
            different devices.

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
    """Restore the random generators of the CPU and the device on exit."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


@contextmanager
def _unpartitioned() -> Iterator[None]:
    """Switch off the partitioning of models while they are built, without importing packages."""
    with _without_trainers_zero3(), outside_zero_init():
        yield


@contextmanager
def _without_trainers_zero3() -> Iterator[None]:
    """Hide the DeepSpeed configuration of the training arguments; with it, transformers partitions new models."""
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
def outside_zero_init() -> Iterator[None]:
    """Leave a surrounding ``deepspeed.zero.Init``, which patches the constructors of all modules."""
    zero: Any = sys.modules.get("deepspeed.runtime.zero.partition_parameters")
    # In a nested load, the outer load has left it already. Leaving it twice would lose the constructors.
    if zero is None or zero.top_level_context is None or not zero.top_level_context.patched:
        yield
        return
    zero.shutdown_init_context()
    try:
        yield
    finally:
        zero.restore_init_context()


def _check_whole(model: nn.Module) -> None:
    # DeepSpeed marks partitioned parameters by an attribute.
    split = [name for name, value in model.named_parameters() if value.numel() == 0 or "ds_id" in vars(value)]
    if split:
        raise RuntimeError(
            f"{type(model).__name__} was partitioned while it was loaded, so it cannot run on its own: DeepSpeed "
            f"holds, or left empty, {', '.join(split[:3])}{', ...' if len(split) > 3 else ''}. What load_frozen loads "
            "must be made inside `build`, not before"
        )


def merge_adapter(adapter: str | Path, base_model: str | None = None, dtype: str = "auto") -> tuple[Any, Any]:
    """Merge a LoRA adapter, and modules trained with it such as CT-CHAT's projector, into a language model.

    Args:
        adapter: Folder of the adapter, with its processor.
        base_model: Model that the adapter was trained on. Default: as the adapter says.
        dtype: Type of the weights; ``auto`` is that of the base model.

    Returns:
        The merged model, and its processor.

    Raises:
        SettingError: If the folder contains no adapter.
        FileNotFoundError: If the folder of the base model does not exist.
    """
    peft = require("peft", extra="models")
    transformers = require("transformers", extra="models")
    # Registers CT-CHAT with the automatic classes of transformers.
    require("rrg_rewards.models.ct_chat.model", extra="models")
    if not (Path(adapter) / "adapter_config.json").is_file():
        raise SettingError(None, f"{adapter}: no LoRA adapter (there is no adapter_config.json)")
    source = base_model or peft.PeftConfig.from_pretrained(str(adapter)).base_model_name_or_path
    try:
        check_model_source(source, "base_model")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; name the model that the adapter was trained on as `base_model`") from error
    base = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype, trust_remote_code=False)
    model = peft.PeftModel.from_pretrained(base, str(adapter)).merge_and_unload(safe_merge=True)
    return model, transformers.AutoProcessor.from_pretrained(str(adapter), trust_remote_code=False)
