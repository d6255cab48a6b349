"""A second kind of device without its hardware, for tests of placement and of waits for the device.

Its tensors compute on the CPU. As with CUDA, they refuse to be mixed with tensors of the CPU or of another index,
except where CUDA takes them: numbers (tensors without dimensions) in elementwise operations, indices of the CPU in
indexing, and copies. ``torch.device("emulated", 0)`` and ``torch.device("emulated", 1)`` are two such devices.

:func:`count_syncs` counts where the host waits for the device, which CUDA does silently.

Import this module at the top of a test file: torch learns the devices once per process, before its first backward pass.
Not emulated: random generators of a device (its random numbers come from the CPU), streams, memory, kernels, whose
rounding differs on a GPU, float16 with a gradient scaler, and gradients on the second index.

On a machine with a GPU there is no second device, because autograd supports one kind of device beside the CPU: with
this one registered, each backward pass on the GPU raises an internal error. ``CUDA_VISIBLE_DEVICES=`` hides the GPU.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _DummyDeviceGuard,
    _DummyPrivateUse1Hook,
    _setup_privateuseone_for_python_backend,
)

# Torch adds methods of this name to tensors and modules, so that no module can have a part of this name.
NAME, COUNT = "emulated", 2


class _Backend(_DummyBackendModule):  # type: ignore[misc, unused-ignore]
    """What torch asks of the module ``torch.emulated``. It is available within :func:`second_device` only."""

    def __init__(self) -> None:
        self.available = False

    def is_available(self) -> bool:
        return self.available

    def device_count(self) -> int:
        return COUNT if self.available else 0

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


_BACKEND = _Backend()
IS_EMULATED = not torch.cuda.is_available()
if IS_EMULATED:
    _setup_privateuseone_for_python_backend(NAME, _BACKEND, _DummyPrivateUse1Hook(), _DummyDeviceGuard())
CPU = torch.device("cpu")
DEVICE, OTHER = (torch.device(NAME if IS_EMULATED else "privateuseone", index) for index in range(COUNT))


class SecondTensor(Tensor):
    """A tensor on one of the devices. ``held`` has its values, on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor, device: torch.device, requires_grad: bool = False) -> "SecondTensor":
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        made: SecondTensor = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), **layout, device=device, requires_grad=requires_grad
        )
        made.held = held.detach()
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"SecondTensor({self.held}, device='{self.device}')"

    def __deepcopy__(self, memo: dict[int, Any]) -> "SecondTensor":
        if id(self) not in memo:
            copied = SecondTensor(self.held.clone(), self.device, self.requires_grad)
            memo[id(self)] = torch.nn.Parameter(copied, self.requires_grad) if _is_parameter(self) else copied
        found: SecondTensor = memo[id(self)]
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (self.held.clone(), str(self.device), self.requires_grad, _is_parameter(self))

    def tolist(self) -> Any:
        """Return the values, for which the host waits."""
        _note("tolist")
        return self.held.tolist()

    def numpy(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error, as CUDA does."""
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )

    __array__ = numpy

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


def _is_parameter(tensor: Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter)


def _restored(held: Tensor, device: str, requires_grad: bool, is_parameter: bool) -> Tensor:
    """Return a pickled tensor on its device, or where the ``map_location`` of ``torch.load`` wants it."""
    wanted = torch.serialization._serialization_tls.map_location
    # Of the functions that are given, those of Lightning leave a tensor on the CPU.
    place = "cpu" if callable(wanted) else wanted.get(device, device) if isinstance(wanted, dict) else wanted or device
    found = held.to(place).requires_grad_(requires_grad)
    return torch.nn.Parameter(found, requires_grad) if is_parameter else found


torch.serialization.add_safe_globals([_restored])


# --- Waits ------------------------------------------------------------------------------------------------------------


class Syncs:
    """Waits of the host for the device, by kind and place.

    Attributes:
        reads: What the host reads from the device, or needs to know to go on (``.item()``, ``bool(tensor)``,
            ``.tolist()``, ``.cpu()``, ``nonzero``, boolean indices), by kind and place in the code.
        uploads: Copies to the device for which the host waits, because memory is not pinned, by place in the code.
    """

    def __init__(self) -> None:
        self.reads: Counter[tuple[str, str]] = Counter()
        self.uploads: Counter[str] = Counter()


_COUNTED: list[Syncs] = []
_ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def count_syncs() -> Iterator[Syncs]:
    """Count the waits within the context, in all threads."""
    counted = Syncs()
    _COUNTED.append(counted)
    try:
        yield counted
    finally:
        _COUNTED.remove(counted)


def _note(kind: str) -> None:
    for counted in _COUNTED:
        counted.reads[kind, _place()] += 1


def _note_upload() -> None:
    for counted in _COUNTED:
        counted.uploads[_place()] += 1


def _place() -> str:
    """Return the innermost line outside of torch, and for a library the line of the package that called it."""
    frame, place = sys._getframe(1), ""
    while frame is not None:
        path = frame.f_code.co_filename
        if "site-packages" in path:
            if not place and "/torch/" not in path:
                place = f"{path.split('site-packages/')[1]}:{frame.f_lineno}"
        elif path.startswith(str(_ROOT)) and path != __file__:
            own = f"{Path(path).relative_to(_ROOT)}:{frame.f_lineno} {frame.f_code.co_name}"
            if not place or not own.startswith("tests"):
                return f"{place} from {own}" if place else own
        frame = frame.f_back  # type: ignore[assignment]
    return place or "torch"


# --- Operations -------------------------------------------------------------------------------------------------------

# How often an operation waits: it reads a number, or its result has a shape that depends on values.
_WAITS = {
    f"aten::{name}": 1
    for name in [
        *("_local_scalar_dense", "equal", "nonzero", "masked_select", "bincount", "repeat_interleave"),
        *("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
    ]
}
# It checks that no probability is negative or infinite, and that no sum of them is 0.
_WAITS["aten::multinomial"] = 2
_COPIES = {"aten::_to_copy", "aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize"}
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index"}
# CUDA takes numbers of the CPU here, too.
_TAKES_NUMBERS = {"aten::fill_", "aten::masked_fill_", "aten::masked_fill", "aten::where", "aten::index_fill_"}


@cache
def _kind(func: Any) -> tuple[str, bool, bool, tuple[int, ...]]:
    """Return the name, whether numbers of the CPU are taken, whether results are views, and what is written."""
    schema = func._schema
    takes_numbers = torch.Tag.pointwise in func.tags or schema.name in _TAKES_NUMBERS
    is_view = any(result.alias_info is not None for result in schema.returns)
    aliases = [argument.alias_info for argument in schema.arguments]
    written = tuple(place for place, alias in enumerate(aliases) if alias is not None and alias.is_write)
    return schema.name, takes_numbers, is_view, written


def _compute(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Run an operation on the CPU if all its tensors lie where CUDA would want them."""
    name, takes_numbers, is_view, written = _kind(func)
    ours: list[SecondTensor] = []
    others: list[Tensor] = []

    own_args = _held(args, ours, others)
    own_kwargs = {key: _held(value, ours, others) for key, value in kwargs.items()}
    if ours and name not in _COPIES:
        strangers = others
        if name in _INDEXING and isinstance(args[0], SecondTensor):
            # Indices may lie on the CPU, and a value without dimensions.
            strangers = [value for value in args[2:3] if not isinstance(value, SecondTensor) and value.ndim]
        elif takes_numbers:
            into = [args[place] for place in written if place < len(args)]
            strangers = [value for value in others if value.ndim or any(value is one for one in into)]
        _check_places(name, {*(value.device for value in ours), *(value.device for value in strangers)})
    place = _result_place(name, args, kwargs, ours)
    generator = kwargs.get("generator")
    if place is not None and generator is not None:
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found '{generator.device}' ({name})")
    if _COUNTED:
        _count(name, args, kwargs, ours, place)
    if "device" in own_kwargs:
        own_kwargs["device"] = CPU
    out = func(*own_args, **own_kwargs)
    if any(value.held.shape != value.shape for value in ours):
        raise NotImplementedError(f"{func} changes the shape of a tensor of the second device in place")
    if place is None:
        return out
    given = {id(value.held): value for value in ours}
    if torch.is_inference_mode_enabled() and is_view and any(not value.is_inference() for value in ours):
        # In inference mode, a view of a tensor that was made outside of it is not an inference tensor, either.
        with torch.inference_mode(False):
            return _wrapped(out, given, place)
    return _wrapped(out, given, place)


def _held(value: Any, ours: list[SecondTensor], others: list[Tensor]) -> Any:
    """Return an argument with tensors of the CPU; note all tensors."""
    if isinstance(value, SecondTensor):
        ours.append(value)
        return value.held
    if isinstance(value, Tensor):
        others.append(value)
    return type(value)(_held(one, ours, others) for one in value) if type(value) in (list, tuple) else value


def _wrapped(value: Any, given: Mapping[int, SecondTensor], place: torch.device) -> Any:
    """Return a result on the device; the result of an operation into a given tensor is this tensor."""
    if isinstance(value, Tensor):
        return given[id(value)] if id(value) in given else SecondTensor(value, place)
    return type(value)(_wrapped(one, given, place) for one in value) if type(value) in (list, tuple) else value


def _result_place(name: str, args: Any, kwargs: Mapping[str, Any], ours: list[SecondTensor]) -> torch.device | None:
    """Return the device of the result, or ``None`` for the CPU."""
    if name == "aten::copy_":
        return args[0].device if isinstance(args[0], SecondTensor) else None
    if kwargs.get("device") is not None:
        wanted = torch.device(kwargs["device"])
        return torch.device(NAME, wanted.index or 0) if wanted.type == NAME else None
    return ours[0].device if ours else None


def _check_places(name: str, devices: set[torch.device]) -> None:
    if len(devices) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(sorted(map(str, devices)))}! ({name})"
        )


def _count(
    name: str, args: Any, kwargs: Mapping[str, Any], ours: list[SecondTensor], place: torch.device | None
) -> None:
    """Count the waits of an operation: those of CUDA's kernels of the same name."""
    if name in _COPIES:
        source = args[0] if name == "aten::_to_copy" else args[1]
        if isinstance(source, SecondTensor) and place is None:
            _note("cpu")
        elif place is not None and not isinstance(source, SecondTensor) and _waits_for_copy(source, name, args, kwargs):
            _note_upload()
    elif ours and name in _WAITS and kwargs.get("output_size") is None:
        for _ in range(_WAITS[name]):
            _note(name.removeprefix("aten::"))
    elif ours and name in _INDEXING:
        _count_indices(args)


def _waits_for_copy(source: Tensor, name: str, args: Any, kwargs: Mapping[str, Any]) -> bool:
    is_non_blocking = kwargs.get("non_blocking") or (name == "aten::copy_" and len(args) > 2 and args[2])
    return bool(source.numel()) and not is_non_blocking


def _count_indices(args: Any) -> None:
    indices = [index for index in args[1] if index is not None]
    if any(not isinstance(index, SecondTensor) for index in indices):
        _note_upload()
    # A number is filled in by the mask itself.
    fills = len(args) > 2 and args[2].numel() == 1
    if not fills and any(isinstance(one, SecondTensor) and one.dtype in (torch.bool, torch.uint8) for one in indices):
        _note("boolean index")


def _overloads(names: str) -> list[Any]:
    """Return the overloads of operations that neither write into a given tensor nor take names of dimensions."""
    packets = [getattr(torch.ops.aten, name) for name in names.split()]
    found = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    return [one for one in found if "out" not in one._overloadname and "Dimname" not in str(one._schema)]


def _directly(func: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: _compute(func, args, kwargs)


# Operations without a tensor of the device among their arguments, such as factories, come here.
_FALLBACKS, _KERNELS = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
_FALLBACKS.fallback(lambda func, *args, **kwargs: _compute(func, args, kwargs), "PrivateUse1")
_FALLBACKS.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
# Torch calls some operations below its dispatch to subclasses, and resizes the results of some factories.
for _func in _overloads("copy_ _to_copy index arange linspace"):
    _KERNELS.impl(_func, _directly(_func), "PrivateUse1")


# --- Mixed precision --------------------------------------------------------------------------------------------------

# The main operations of CUDA's lists (ATen/autocast_mode.h).
_IN_LOW_PRECISION = (
    "linear matmul mm bmm addmm baddbmm mv einsum conv1d conv2d conv3d convolution scaled_dot_product_attention"
)
_IN_FLOAT32 = (
    "exp log pow rsqrt reciprocal softplus layer_norm rms_norm group_norm mse_loss nll_loss nll_loss_nd "
    "binary_cross_entropy_with_logits cosine_similarity norm softmax log_softmax cross_entropy_loss sum cumsum prod "
    "logsumexp smooth_l1_loss huber_loss"
)


def _cast(func: Any, low: bool) -> Callable[..., Any]:
    """Return an operation with the types of autocast."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def cast(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.device.type != NAME:
            return value
        if low:
            return value if value.dtype == torch.float64 else value.to(torch.get_autocast_dtype(NAME))
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            own_args, own_kwargs = tree_map(cast, (args, kwargs))
            return func(*own_args, **own_kwargs)

    return run


for _names, _low in ((_IN_LOW_PRECISION, True), (_IN_FLOAT32, False)):
    for _func in _overloads(_names):
        _KERNELS.impl(_func, _cast(_func, _low), "AutocastPrivateUse1")


# --- Use --------------------------------------------------------------------------------------------------------------


@contextmanager
def second_device() -> Iterator[torch.device]:
    """Make the devices available; moves of modules keep their parameters, and tied weights tied.

    Raises:
        RuntimeError: If there is a GPU.
    """
    if not IS_EMULATED:
        raise RuntimeError("with a GPU there is no emulated device; set CUDA_VISIBLE_DEVICES= to hide the GPU")
    # torch.load leaves its map_location behind if it refuses a file, as the tests of untrusted weights make it do.
    torch.serialization._serialization_tls.map_location = None
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    _BACKEND.available = True
    try:
        yield DEVICE
    finally:
        _BACKEND.available = False
        torch.__future__.set_swap_module_params_on_conversion(before)


WITHOUT_GPU = pytest.mark.skipif(not IS_EMULATED, reason="with a GPU there is no emulated device")
KINDS = [pytest.param(NAME, marks=WITHOUT_GPU), pytest.param("cuda", marks=pytest.mark.gpu)]
"""Parameters of tests that run on the second device and, with the marker ``gpu``, on a GPU."""


@contextmanager
def devices_of(kind: str) -> Iterator[tuple[torch.device, torch.device]]:
    """Make a kind's devices available: the first, and another one (with one GPU, the CPU)."""
    if kind != NAME:
        yield torch.device(kind, 0), torch.device(kind, 1) if torch.cuda.device_count() > 1 else CPU
        return
    with second_device():
        yield DEVICE, OTHER


def lightning_settings(precision: str | None = None, device: torch.device = DEVICE) -> dict[str, Any]:
    """Return arguments of Lightning's trainer that train on a device, in ``bf16-mixed`` or in float32."""
    if device.type != NAME:
        return {"accelerator": device.type, "devices": 1, "precision": precision}
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins.precision import MixedPrecision
    from lightning.pytorch.strategies import SingleDeviceStrategy

    class SecondStrategy(SingleDeviceStrategy):
        def teardown(self) -> None:
            # The traceback of an error holds tensors, which then cannot be moved to the CPU: they would hide the error.
            if sys.exc_info()[0] is None:
                super().teardown()

    class SecondAccelerator(Accelerator):
        def setup_device(self, device: torch.device) -> None:
            assert device.type == NAME

        def teardown(self) -> None:
            pass

        @staticmethod
        def parse_devices(devices: Any) -> list[int]:
            return list(range(devices))

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device(NAME, index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return 1

        @staticmethod
        def is_available() -> bool:
            return _BACKEND.available

        @staticmethod
        def name() -> str:
            return NAME

    plugins = {"plugins": [MixedPrecision(precision, device=NAME)]} if precision else {}
    return {"accelerator": SecondAccelerator(), "strategy": SecondStrategy(DEVICE), "devices": 1, **plugins}
