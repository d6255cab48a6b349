"""Decoding in graphs: one step of a causal language model and of sampling, without the host's work for each layer.

Decoding eagerly, the host launches hundreds of kernels for each token, which takes longer than they do. Here keys and
values have a fixed size and are written in place, so that a step can be captured as a CUDA graph on a GPU, or compiled.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, StaticLayer

from rrg_rewards.training.policy.adapters import adapted_layers
from rrg_rewards.training.policy.generators import Completions
from rrg_rewards.training.policy.shared_prompts import (
    TOKENS_PER_READ,
    Prompts,
    Sampling,
    new_cache,
    random_draws,
    sample_tokens,
)

# Least number of rows of a step. Fewer rows take as long.
_FEWEST = 4
# Keys and values have room for a multiple of this number of tokens.
_ROOM = 64
# Buffers that take more than this fraction of a GPU's memory are freed for training.
_KEPT = 1 / 8
# Rotary embeddings that read the positions.
_READING_ROPES = ("dynamic", "longrope")


def reason_against_graphs(model: Any) -> str | None:
    """Return why a model cannot decode in graphs, or ``None`` if it can."""
    device = next(model.parameters()).device.type
    if device not in ("cpu", "cuda"):
        return f"it is on {device}"
    if new_cache(model) is None:
        return "it has sliding windows, recurrent states or trained prompts"
    if any(not part._can_compile_fullgraph for part in model.modules() if isinstance(part, PreTrainedModel)):
        return "transformers does not compile this architecture"
    config = model.config.get_text_config(decoder=True)
    if config._attn_implementation != "sdpa":
        return f"its attention is {config._attn_implementation}, not sdpa"
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if rope in _READING_ROPES or getattr(config, "alibi", False):
        return f"its positions are encoded by {'alibi' if rope is None else rope}"
    if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        return "it is on several devices"
    quantizer = getattr(model, "hf_quantizer", None)
    return None if quantizer is None or quantizer.is_compileable else "its quantization cannot be compiled"


class _FixedLayer(StaticLayer):  # type: ignore[misc]  # transformers is an optional dependency
    """Keys and values of a layer, ``(N, heads, L, width)``, which are written at the position in ``slot`` ``(1,)``."""

    def __init__(self, keys: Tensor, values: Tensor, slot: Tensor) -> None:
        super().__init__(keys.shape[2])
        self.keys, self.values, self.slot, self.cumulative_length = keys, values, slot, slot
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the keys and values of a token, and return all."""
        # With autocasting, the prompts' may be wider, as those to which a dynamic cache appends.
        self.keys.index_copy_(2, self.slot, key_states.to(self.keys.dtype))
        self.values.index_copy_(2, self.slot, value_states.to(self.values.dtype))
        return self.keys, self.values


@dataclass
class _State:
    """Completions that are being sampled. The first dimension of the tensors is that of the ``N`` rows of a step.

    Args:
        cache: Keys and values.
        mask: ``(N, 1, 1, L)``, whether the next token sees a key.
        last: Last token of each row.
        positions: Position of this token.
        rows: Row of ``tokens`` of each row.
        going: Whether the completion has not ended.
        tokens: Sampled tokens ``(M, T)``, of all rows.
        log_probs: Their log-probabilities ``(M, T)``.
        draws: Random numbers of the next tokens, ``(M,)`` or ``(M, V)``.
        slot: Place of the last token among the keys, ``(1,)``.
        step: Number of sampled tokens, ``(1,)``.
        temperature: Sampling temperature, ``(1,)``, unless tokens are the most probable ones.
        ends: Ids of the end-of-sequence tokens.
    """

    cache: Cache
    mask: Tensor
    last: Tensor
    positions: Tensor
    rows: Tensor
    going: Tensor
    tokens: Tensor
    log_probs: Tensor
    draws: Tensor
    slot: Tensor
    step: Tensor
    temperature: Tensor
    ends: Tensor

    @classmethod
    def allocate(
        cls, cache: DynamicCache, draws: Tensor, ends: Sequence[int], rows: int, room: int, tokens: int
    ) -> "_State":
        """Return buffers for ``rows`` rows of ``room`` keys, of which ``tokens`` are those of the completion."""
        (device,) = {layer.keys.device for layer in cache.layers}
        numbers = {name: torch.zeros(rows, dtype=torch.long, device=device) for name in ("last", "positions")}
        slot, step = (torch.zeros(1, dtype=torch.long, device=device) for _ in range(2))
        # Zeros, because attention multiplies values that it does not see by 0.
        layers = []
        for layer in cache.layers:
            keys, values = (own.new_zeros(rows, own.shape[1], room, own.shape[3]) for own in (layer.keys, layer.values))
            layers.append(_FixedLayer(keys, values, slot))
        return cls(
            cache=Cache(layers=layers),
            mask=torch.ones(rows, 1, 1, room, dtype=torch.bool, device=device),
            rows=torch.arange(rows, device=device),
            going=torch.zeros(rows, dtype=torch.bool, device=device),
            tokens=torch.zeros(rows, tokens, dtype=torch.long, device=device),
            log_probs=torch.zeros(rows, tokens, device=device),
            draws=draws.new_ones(rows, *draws.shape[1:]),
            slot=slot,
            step=step,
            temperature=torch.ones(1, device=device),
            ends=torch.tensor(list(ends), device=device),
            **numbers,
        )

    def first(self, count: int) -> "_State":
        """Return the first rows, in the same memory."""
        layers = [_FixedLayer(layer.keys[:count], layer.values[:count], self.slot) for layer in self.cache.layers]
        names = ("mask", "last", "positions", "rows", "going")
        return replace(self, cache=Cache(layers=layers), **{name: getattr(self, name)[:count] for name in names})

    def load(self, prompts: Prompts, cache: DynamicCache, temperature: float) -> None:
        """Copy the prompts to their rows. Rows that are left over are those of the first prompt."""
        left, width = len(self.last) - len(prompts.index), prompts.mask.shape[1]
        index = pad(prompts.index, (0, left))
        for own, read in zip(self.cache.layers, cache.layers, strict=True):
            for part, prompt in ((own.keys, read.keys), (own.values, read.values)):
                part[:, :, :width] = prompt.index_select(0, index)
                # What is not seen is multiplied by 0, which NaN of earlier batches would survive.
                part[:, :, width:].zero_()
        mask = prompts.inputs["attention_mask"].index_select(0, index)
        self.mask.zero_()[:, 0, 0, :width] = mask.bool()
        torch.sum(mask, 1, out=self.positions)
        torch.arange(len(self.rows), out=self.rows)
        torch.lt(self.rows, len(prompts.index), out=self.going)
        self.slot.fill_(width)
        self.step.zero_()
        self.temperature.fill_(temperature)

    def add(self, logits: Tensor, is_greedy: bool) -> None:
        """Sample the next tokens."""
        options = (0.0, None) if is_greedy else (self.temperature, self.draws[self.rows])
        new, scores = sample_tokens(logits, *options)
        self.tokens.index_put_((self.rows, self.step), new)
        self.log_probs.index_put_((self.rows, self.step), scores)
        self.last.copy_(new)
        self.going.logical_and_((new.unsqueeze(1) != self.ends).all(1))
        self.step.add_(1)

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors."""
        yield from (value for value in vars(self).values() if isinstance(value, Tensor))
        yield from (part for layer in self.cache.layers for part in (layer.keys, layer.values))

    def keep(self, kept: Tensor, width: int) -> None:
        """Move some rows to the first places; ``width`` keys have been written."""
        count = len(kept)
        written = [part[:, :, :width] for layer in self.cache.layers for part in (layer.keys, layer.values)]
        for own in (self.mask, self.last, self.positions, self.rows, self.going, *written):
            own[:count] = own.index_select(0, kept)


def _decode(model: Any, state: _State, is_greedy: bool) -> None:
    """Read the last token of each row, and sample the next one."""
    state.mask.index_fill_(3, state.slot, True)
    logits = model(
        input_ids=state.last.unsqueeze(1),
        attention_mask=state.mask,
        position_ids=state.positions.unsqueeze(1),
        past_key_values=state.cache,
        use_cache=True,
    ).logits[:, -1]
    state.slot.add_(1)
    state.positions.add_(1)
    state.add(logits, is_greedy)


class GraphDecoder:
    """Samples as :func:`~rrg_rewards.training.policy.shared_prompts.sample_completions` does, with steps in graphs.

    There is a graph for each of a few numbers of rows. Completions that have ended leave when those that are left fit
    the next one. Graphs are kept while the weights stay where they are, whatever their values.

    Args:
        model: A causal language model for which :func:`reason_against_graphs` finds no reason.
        compiles: Whether to compile steps, as on a CPU, instead of capturing them as CUDA graphs.
    """

    def __init__(self, model: Any, compiles: bool | None = None) -> None:
        self.device = next(model.parameters()).device
        self.compiles = self.device.type != "cuda" if compiles is None else compiles
        # Adapters are layers of the model within.
        self._model = getattr(model, "get_base_model", lambda: model)()
        self._states: dict[int, _State] = {}
        # By the number of rows, and whether tokens are the most probable ones.
        self._steps: dict[tuple[int, bool], Callable[[], Any]] = {}
        self._compiled: dict[bool, Callable[..., None]] = {}
        self._signature: Any = None
        self._pool: Any = None

    # Buffers that validation makes in inference mode could not be written in training.
    @torch.inference_mode(False)
    @torch.no_grad()
    def sample(self, prompts: Prompts, cache: DynamicCache, logits: Tensor, sampling: Sampling) -> Completions:
        """Generate one completion for each row, with the log-probabilities of its tokens.

        Args:
            prompts: The prompts of the rows.
            cache: Their keys and values, which are not changed.
            logits: Logits ``(N, V)`` after the prompts of the rows.
            sampling: How to sample.
        """
        (count, vocabulary), is_cpu, is_greedy = logits.shape, self.device.type == "cpu", not sampling.temperature
        width, draws = prompts.mask.shape[1], random_draws(0 if is_greedy else count, vocabulary, self.device)
        self._prepare(cache, draws, prompts.mask.shape, sampling)
        rows = first = self._rows_for(count)
        state = self._states[rows]
        state.load(prompts, cache, sampling.temperature)
        state.draws[: len(draws)] = draws
        state.add(pad(logits, (0, 0, 0, first - count)), is_greedy)
        done = 1
        while done < sampling.max_new_tokens:
            if is_cpu or done % TOKENS_PER_READ == 0:
                going = int(state.going.sum())
                if not going:
                    break
                fewer = self._rows_for(going)
                if fewer < rows:
                    # Rows that have ended fill the step.
                    state.keep((~state.going).long().argsort(stable=True)[:fewer], width + done - 1)
                    rows, state = fewer, self._states[fewer]
            # Outside of the graph, so that their sequence depends on the step's seed only.
            state.draws[: len(draws)] = random_draws(len(draws), vocabulary, self.device)
            self._steps[rows, is_greedy]()
            done += 1
        found = sampling.completions(state.tokens[:count, :done], state.log_probs[:count, :done])
        if not self._fits():
            self.free()
        return found

    def _fits(self) -> bool:
        """Whether the buffers may stay on a GPU. On a CPU, making them anew costs little."""
        if self.device.type != "cuda":
            return False
        held = sum(tensor.nbytes for tensor in self._states[max(self._states)].tensors())
        return held <= _KEPT * torch.cuda.get_device_properties(self.device).total_memory

    def free(self) -> None:
        """Free keys, values and CUDA graphs. Compiled code is kept."""
        self._states, self._steps, self._signature = {}, {}, None

    def _rows_for(self, count: int) -> int:
        return min(rows for rows in self._states if rows >= count)

    def _prepare(self, cache: DynamicCache, draws: Tensor, prompts: torch.Size, sampling: Sampling) -> None:
        """Make buffers that are large enough and belong to the weights, and the steps of greedy or other sampling."""
        tokens, is_greedy = sampling.max_new_tokens, not sampling.temperature
        signature = *_signature(self._model), cache.layers[0].keys.dtype, *draws.shape[1:], *sampling.end_token_ids
        room = -(-(prompts[1] + tokens) // _ROOM) * _ROOM
        held = self._states[max(self._states)] if self._states else None
        size = (prompts[0], room, tokens)
        known = (0, 0, 0) if held is None else (len(held.last), held.mask.shape[3], held.tokens.shape[1])
        if signature != self._signature or any(new > old for new, old in zip(size, known, strict=True)):
            if signature == self._signature:
                size = (max(size[0], known[0]), max(size[1], known[1]), max(size[2], known[2]))
            self.free()
            whole = _State.allocate(cache, draws, sampling.end_token_ids, *size)
            self._states = {rows: whole.first(rows) for rows in _numbers_of_rows(size[0], self.device.type == "cpu")}
            self._signature = signature
            # Graphs never run at the same time and leave their results in the states, so they share their memory.
            self._pool = None if self.compiles else torch.cuda.graph_pool_handle()
            if self.compiles and self.device.type == "cuda":
                for tensor in chain(*(state.tensors() for state in self._states.values())):
                    # Otherwise, CUDA graphs of torch.compile copy what is written in place, or are left out.
                    torch._dynamo.mark_static_address(tensor)
        for rows, state in self._states.items():
            if (rows, is_greedy) not in self._steps:
                self._steps[rows, is_greedy] = self._make_step(state, is_greedy)

    def _make_step(self, state: _State, is_greedy: bool) -> Callable[[], Any]:
        if self.compiles:
            if is_greedy not in self._compiled:
                self._compiled[is_greedy] = compiled(_decode, self.device)
            return partial(self._compiled[is_greedy], self._model, state, is_greedy)
        return captured(partial(_decode, self._model, state, is_greedy), state, self._pool)


def compiled(step: Callable[..., None], device: torch.device) -> Callable[..., None]:
    """Return a compiled copy of a function, which is compiled when it is called with inputs of a new kind."""
    # torch limits how often it compiles a function, by its code: each copy has a limit of its own.
    assert isinstance(step, FunctionType)
    own = FunctionType(step.__code__.replace(), step.__globals__, step.__name__)
    mode = "reduce-overhead" if device.type == "cuda" else None
    return torch.compile(own, fullgraph=True, mode=mode)


def captured(step: Callable[[], None], state: _State, pool: Any) -> Callable[[], Any]:
    """Return a step that a CUDA graph repeats. It is run once meanwhile, on whatever rows the state has."""
    device, kind = state.last.device, state.last.device.type
    # Casts of weights must be part of the graph, because weights change.
    casts = torch.autocast(
        kind, torch.get_autocast_dtype(kind), enabled=torch.is_autocast_enabled(kind), cache_enabled=False
    )
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    with torch.cuda.device(device), casts:
        state.slot.zero_(), state.step.zero_()
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            # Kernels are loaded at their first call, which cannot be captured.
            step()
        torch.cuda.current_stream(device).wait_stream(stream)
        # Loaders in other threads may go on.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            step()
    return graph.replay


def _numbers_of_rows(most: int, is_cpu: bool) -> list[int]:
    """Return the numbers of rows of steps, down to the fewest.

    On a GPU, each is half of the one before. On a CPU, the same code serves all numbers.
    """
    numbers = [most]
    while numbers[-1] > _FEWEST:
        numbers.append(max(_FEWEST, numbers[-1] * 7 // 8 if is_cpu else -(-numbers[-1] // 2)))
    return numbers


def _signature(model: Any) -> tuple[Any, ...]:
    """Return what a CUDA graph of a model depends on: places of weights, adapters in use, scaling, and autocasting."""
    kind = next(model.parameters()).device.type
    adapters = [
        (
            tuple(layer.active_adapters),
            tuple(layer.merged_adapters),
            layer.disable_adapters,
            tuple(getattr(layer, "scaling", {}).items()),
        )
        for layer in adapted_layers(model).values()
    ]
    weights = [weight.data_ptr() for weight in chain(model.parameters(), model.buffers())]
    return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), tuple(adapters), tuple(weights)
