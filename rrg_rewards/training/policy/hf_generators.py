"""Hugging Face models as report generators for reinforcement learning."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from transformers import DynamicCache, GenerationConfig, ProcessorMixin

from rrg_rewards.training.policy.adapters import adapters_merged
from rrg_rewards.training.policy.attention import continued_attention
from rrg_rewards.training.policy.generators import Batch, Completions, TokenScores
from rrg_rewards.training.policy.graphs import GraphDecoder, reason_against_graphs
from rrg_rewards.training.policy.shared_prompts import (
    Prompts,
    Sampling,
    accepted_arguments,
    checkpoints_with_cache,
    model_inputs,
    new_cache,
    parts_of_similar_length,
    sample_completions,
)
from rrg_rewards.utilities.processes import num_processes
from rrg_rewards.utilities.settings import SettingError

logger = logging.getLogger(__name__)

Decoding = Literal["auto", "eager", "graph"]


def check_sampling(max_new_tokens: int, temperature: float, decoding: str = "eager") -> None:
    """Check settings of a generator, which recipes do before they load its model.

    Raises:
        SettingError: If a number is not positive, or ``decoding`` is unknown.
    """
    if max_new_tokens < 1:
        raise SettingError("max_new_tokens", f"must be positive, got {max_new_tokens}")
    if not temperature > 0:
        raise SettingError("temperature", f"must be positive, got {temperature}")
    if decoding not in get_args(Decoding):
        raise SettingError("decoding", f"must be auto, eager or graph, got {decoding!r}")


def render_prompts(processor: Any, prompts: Sequence[Any]) -> tuple[list[str], bool]:
    """Return prompts as texts, and whether they were messages.

    A chat template renders messages. Its texts contain the special tokens, so the tokenizer must add none.

    Args:
        processor: Tokenizer or processor of the model.
        prompts: Texts, or lists of messages.
    """
    if isinstance(prompts[0], str):
        return list(prompts), False
    texts = [processor.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False) for prompt in prompts]
    return texts, True


def with_volume(prompt: Any) -> Any:
    """Return the messages with the volume at the start of the first user message, as in TRL.

    Raises:
        ValueError: If the prompt is a text.
    """
    if isinstance(prompt, str):
        raise ValueError("a prompt of CT-CHAT must be a list of messages, got a text")
    first = next(index for index, message in enumerate(prompt) if message["role"] == "user")
    message = prompt[first]
    parts = [{"type": "image"}, {"type": "text", "text": message["content"]}]
    return [*prompt[:first], {**message, "content": parts}, *prompt[first + 1 :]]


class _Generator(nn.Module):
    """Base class of generators that wrap a Hugging Face model: sampling settings, generation and decoding."""

    def __init__(self, model: nn.Module, tokenizer: Any, max_new_tokens: int, temperature: float) -> None:
        super().__init__()
        check_sampling(max_new_tokens, temperature)
        if tokenizer.pad_token_id is None:
            raise ValueError("the tokenizer has no padding token; set tokenizer.pad_token")
        self.model: Any = model
        self.tokenizer = tokenizer
        self.max_new_tokens = max_new_tokens
        self.temperature = temperature
        config = getattr(model, "generation_config", None)
        known = getattr(config, "eos_token_id", None)
        known = known if isinstance(known, list) else [known]
        self.end_token_ids = sorted({token for token in [*known, tokenizer.eos_token_id] if token is not None})
        if not self.end_token_ids:
            raise ValueError("neither tokenizer nor model has an end-of-sequence token: completions would never end")

    def decode(self, completions: Completions) -> list[str]:
        """Return the texts of completions, without special tokens."""
        texts: list[str] = self.tokenizer.batch_decode(completions.token_lists(), skip_special_tokens=True)
        return texts

    def _generate(self, inputs: Mapping[str, Any], start: int, greedy: bool) -> Completions:
        sampling = {"temperature": self.temperature, "top_k": 0, "top_p": 1.0}
        config = GenerationConfig(
            do_sample=not greedy,
            num_beams=1,
            repetition_penalty=1.0,
            max_new_tokens=self.max_new_tokens,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.end_token_ids,
            **({} if greedy else sampling),
        )
        tokens = self.model.generate(**inputs, generation_config=config, synced_gpus=is_sharded(self.model))
        return Completions.until_end(tokens[:, start:], self.end_token_ids)


class CausalLMGenerator(_Generator):
    """A report generator with a causal language model, which may read images.

    Pass :meth:`collate` to the data module. Rows have a ``prompt``, which is a text or a list of messages, and
    optionally an ``image``.

    In a rollout, the prompt of several completions is computed once, in sampling and in :meth:`log_probs`. Rows that
    have ended leave the batch. This changes results by rounding only. Exceptions are models with sliding windows or
    recurrent states, reentrant gradient checkpointing or any before transformers 5.23, and sharded weights (FSDP,
    ZeRO-3), for which each row is computed.

    Args:
        model: A causal language model, or a PEFT model that wraps one.
        processor: The tokenizer of the model, or its processor, which contains a tokenizer.
        max_new_tokens: Maximum length of a completion in tokens.
        temperature: Sampling temperature.
        merge_adapters: Whether to merge PEFT adapters into the weights during generation, and to restore the weights
            afterwards. Generation is faster, but the weights with adapters are stored twice meanwhile, and weights of
            16 bits round the samples' probabilities. Completions therefore have the log-probabilities of the sampler,
            with which :class:`~rrg_rewards.training.PolicyModule` corrects the loss (``sampler_correction``).
        decoding: ``"graph"`` runs the steps of sampling as CUDA graphs, or compiled on the CPU, with keys and values of
            a fixed size, so that the host has less to do for a token. ``"eager"`` runs the layers one by one. Greedy
            tokens are the same, up to rounding; samples, too, on the CPU. ``"auto"`` is ``"graph"`` on a GPU if the
            model supports it, and ``"eager"`` otherwise, and logs which once. CUDA graphs have not been run on a GPU
            yet; on the CPU, compilation takes a minute or more.

    Raises:
        ValueError: If a number is not positive, the tokenizer has no padding or end-of-sequence token, or ``decoding``
            is unknown. In sampling, if it is ``"graph"`` and the model does not support it.
    """

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        *,
        max_new_tokens: int = 256,
        temperature: float = 1.0,
        merge_adapters: bool = False,
        decoding: Decoding = "eager",
    ) -> None:
        check_sampling(max_new_tokens, temperature, decoding)
        tokenizer = processor.tokenizer if isinstance(processor, ProcessorMixin) else processor
        super().__init__(model, tokenizer, max_new_tokens, temperature)
        self.processor = processor
        self.merge_adapters = merge_adapters
        self.decoding = decoding
        self._takes = accepted_arguments(model)
        self._ends_with_head: bool | None = None
        self._decoder: GraphDecoder | None = None
        self._decided_on: torch.device | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without graphs, which cannot be copied."""
        return {**self.__dict__, "_decoder": None, "_decided_on": None}

    @property
    def hidden_size(self) -> int:
        """Width of the model's last hidden states."""
        config = self.model.config
        return int(getattr(config, "text_config", config).hidden_size)

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate rows: convert columns to lists, and add the model's inputs as tensors.

        Raises:
            ValueError: If rows have no prompt.
        """
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        if "prompt" not in columns:
            raise ValueError(f"rows must have a prompt, got columns {', '.join(columns)}")
        return {**columns, **self._inputs(columns["prompt"], columns.get("image"))}

    def sample(self, batch: Batch, *, greedy: bool = False) -> Completions:
        """Generate one completion for each row."""
        # In training mode, dropout and checkpoints change the computation.
        decoder = None if self.model.training else self._graph_decoder()
        cache = None if is_sharded(self.model) else new_cache(self.model)
        if cache is None:
            inputs = model_inputs(batch)
            return self._generate(inputs, inputs["input_ids"].shape[1], greedy)
        merged = adapters_merged(self.model) if self.merge_adapters else nullcontext()
        with torch.no_grad(), merged, continued_attention(self.model):
            prompts = Prompts(batch)
            logits = prompts.read(self.model, cache).index_select(0, prompts.index)
            completions = self._continue(decoder, prompts, cache, logits, 0.0 if greedy else self.temperature)
        return completions if self.merge_adapters and not greedy else replace(completions, log_probs=None)

    def _continue(
        self, decoder: GraphDecoder | None, prompts: Prompts, cache: DynamicCache, logits: Tensor, temperature: float
    ) -> Completions:
        """Sample completions of prompts that have been read."""
        sampling = Sampling(self.max_new_tokens, temperature, self.end_token_ids, self.tokenizer.pad_token_id)
        if decoder is not None:
            try:
                return decoder.sample(prompts, cache, logits, sampling)
            except RuntimeError as error:
                if self.decoding == "graph":
                    raise
                problem = str(error).partition("\n")[0]
                logger.warning("decoding is eager from now on, because a graph failed: %s", problem)
                self._decoder = None
        return sample_completions(self.model, prompts, cache, logits, sampling)

    def _graph_decoder(self) -> GraphDecoder | None:
        """Return the decoder with graphs, or ``None`` for eager decoding. The choice is made once for a device."""
        device = next(self.model.parameters()).device
        if self.decoding == "eager":
            return None
        if device == self._decided_on:
            return self._decoder
        reason = "its weights are sharded" if holds_shards(self.model) else reason_against_graphs(self.model)
        if self.decoding == "graph" and reason is not None:
            raise SettingError("decoding", f"'graph' does not suit the model: {reason}; set it to 'auto' or 'eager'")
        if self.decoding == "auto" and device.type == "cpu":
            reason = reason or "it is on the CPU"
        logger.info("decoding of the model: %s", "graph" if reason is None else f"eager, because {reason}")
        self._decoder, self._decided_on = None if reason is not None else GraphDecoder(self.model), device
        return self._decoder

    def log_probs(self, batch: Batch, completions: Completions) -> TokenScores:
        """Return the scores of given completions."""
        # Replace ids at padding, because the model may have no embedding for them.
        tokens = completions.tokens.masked_fill(completions.mask == 0, self.tokenizer.pad_token_id)
        cache = None if is_sharded(self.model) else new_cache(self.model)
        prompts = None if cache is None else Prompts(batch)
        if prompts is None or len(prompts) == len(tokens):
            return self._scores(model_inputs(batch), tokens, completions)
        return self._shared_scores(prompts, cache, tokens, completions)

    def _scores(self, inputs: Mapping[str, Tensor], tokens: Tensor, completions: Completions) -> TokenScores:
        """Score whole rows."""
        count, mask = tokens.shape[1], torch.cat([inputs["attention_mask"], completions.mask], dim=1)
        options: dict[str, Any] = {"logits_to_keep": count + 1} if "logits_to_keep" in self._takes else {}
        if "position_ids" in self._takes:
            # Count positions from the first token that is not padding, as generation does.
            options["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        rows = {**inputs, "input_ids": torch.cat([inputs["input_ids"], tokens], dim=1), "attention_mask": mask}
        states: list[Tensor] = []
        with self._without_head(inputs) as head, _recording_states(self.model, states):
            logits = self.model(**rows, use_cache=False, **options).logits[:, -count - 1 : -1]
        return self._token_scores(head, logits, completions, states[-1][:, -count - 1 : -1] if states else None)

    def _token_scores(
        self, head: Callable[[Tensor], Tensor] | None, logits: Tensor, completions: Completions, hidden: Tensor | None
    ) -> TokenScores:
        """Return scores from logits, or from the states that a model without its head returns instead."""
        if head is None:
            return TokenScores.from_logits(logits, completions, self.temperature, hidden)
        return TokenScores.from_states(logits, head, completions, self.temperature)

    @contextmanager
    def _without_head(self, inputs: Mapping[str, Tensor]) -> Iterator[Callable[[Tensor], Tensor] | None]:
        """Let the model return the inputs of its head instead of logits, and yield the head; ``None`` if it cannot."""
        head = self.model.get_output_embeddings()
        if self._ends_with_head is None:
            self._ends_with_head = head is not None and not holds_shards(self.model) and self._is_last(head, inputs)
        if not self._ends_with_head:
            yield None
            return
        forward, own = head.forward, head.__dict__.get("forward")
        head.forward = lambda states: states
        try:
            yield forward
        finally:
            del head.forward
            if own is not None:
                head.forward = own

    def _is_last(self, head: nn.Module, inputs: Mapping[str, Tensor]) -> bool:
        """Whether logits are the outputs of the head, which some models scale or bound, as those of a prompt show."""
        outputs: list[Tensor] = []
        handle = head.register_forward_hook(lambda _, __, output: outputs.append(output))
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        keep = {"logits_to_keep": 1} if "logits_to_keep" in self._takes else {}
        try:
            # Dropout must not change the random numbers of the step.
            with torch.no_grad(), torch.random.fork_rng(devices):
                first = {name: column[:1] for name, column in inputs.items()}
                logits = self.model(**first, use_cache=False, **keep).logits
        finally:
            handle.remove()
        return len(outputs) == 1 and logits.dtype == outputs[0].dtype and torch.equal(logits, outputs[0])

    def _shared_scores(
        self, prompts: Prompts, cache: DynamicCache, tokens: Tensor, completions: Completions
    ) -> TokenScores:
        """Score rows whose prompts are computed once, in parts of rows of similar length."""
        states: list[Tensor] = []
        kept = checkpoints_with_cache(self.model)
        with self._without_head(prompts.inputs) as head, _recording_states(self.model, states), kept:
            first = prompts.read(self.model, cache).unsqueeze(1)
            cached = [state[:, -1:] for state in states]
            parts = parts_of_similar_length(torch.tensor(completions.length_list), tokens.device.type == "cpu")
            scores = []
            for own in parts:
                part, rows = completions.rows(own), own.to(tokens.device)
                index, width = prompts.index[rows], part.tokens.shape[1] - 1
                logits, hidden = [first.index_select(0, index)], [state.index_select(0, index) for state in cached]
                if width:
                    states.clear()
                    logits.append(
                        prompts.continue_with(self.model, cache, rows, tokens[rows, :width], part.mask[:, :width])
                    )
                    hidden += states
                joined = torch.cat(hidden, dim=1) if hidden else None
                scores.append(self._token_scores(head, torch.cat(logits, dim=1), part, joined))
        return TokenScores.joined(scores, torch.cat(parts), tokens.shape[1])

    def _inputs(self, prompts: Sequence[Any], images: Sequence[Any] | None) -> dict[str, Tensor]:
        texts, conversational = render_prompts(self.processor, prompts)
        given = {} if images is None else {"images": [[image] for image in images]}
        # Pad on the left, because generation continues after the last token.
        inputs = self.processor(
            text=texts,
            padding=True,
            padding_side="left",
            add_special_tokens=not conversational,
            return_tensors="pt",
            **given,
        )
        names = inputs.keys() if given else ("input_ids", "attention_mask")
        return {name: inputs[name] for name in names}


class CTChatGenerator(CausalLMGenerator):
    """A report generator with CT-CHAT. The ``image`` of a row is a volume, its features, or the path of its features.

    Args:
        model: :class:`rrg_rewards.models.CTChatForConditionalGeneration`, or a PEFT model that wraps one.
        processor: The :class:`rrg_rewards.models.CTChatProcessor` of the model.
        max_new_tokens: Maximum length of a completion in tokens.
        temperature: Sampling temperature.
        merge_adapters: Whether to merge PEFT adapters during generation, as in :class:`CausalLMGenerator`.
        decoding: How the steps of sampling run, as in :class:`CausalLMGenerator`.
    """

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate rows with ``image`` and ``prompt``, a list of messages to which the volume is added.

        Raises:
            ValueError: If a row has no prompt or no volume; the message names the row.
        """
        for index, row in enumerate(rows):
            if row.get("image") is None or "prompt" not in row:
                raise ValueError(f"row {index} must have a prompt and an image, got columns {', '.join(row)}")
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        prompts = [with_volume(prompt) for prompt in columns["prompt"]]
        return {**columns, **self._inputs(prompts, columns["image"])}


class ImageTextGenerator(CausalLMGenerator):
    """A report generator with any image-text model of transformers, for generation only.

    Args:
        model: A model of ``AutoModelForImageTextToText``.
        processor: The processor of the model, with a chat template.
        max_new_tokens: Maximum length of a completion in tokens.
        temperature: Sampling temperature.
    """

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate rows with ``image``, the path of an image file, and ``prompt``, a list of messages."""
        from transformers.image_utils import load_image

        columns = {name: [row[name] for row in rows] for name in rows[0]}
        images = [load_image(path) for path in columns["image"]]
        prompts = [[_in_parts(message) for message in with_volume(prompt)] for prompt in columns["prompt"]]
        return {**columns, **self._inputs(prompts, images)}

    def sample(self, batch: Batch, *, greedy: bool = False) -> Completions:
        """Generate one completion for each row."""
        # Shared prompts would need to know which inputs of the model belong to which row.
        inputs = model_inputs(batch)
        return self._generate(inputs, inputs["input_ids"].shape[1], greedy)


def _in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message whose content is a list: templates of image-text models ignore a text."""
    content = message["content"]
    return {**message, "content": [{"type": "text", "text": content}] if isinstance(content, str) else content}


class EncoderDecoderGenerator(_Generator):
    """A report generator with an encoder-decoder, from images or text to reports.

    Args:
        model: A model such as ``VisionEncoderDecoderModel`` or T5, or a PEFT model that wraps one.
        tokenizer: The tokenizer of the decoder.
        input_keys: Columns of a batch that are inputs of the encoder: tensors with the names of the model's arguments.
        max_new_tokens: Maximum length of a completion in tokens.
        temperature: Sampling temperature.

    Raises:
        ValueError: If a number is not positive, the tokenizer has no padding or end-of-sequence token, or the decoder
            has no start token.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        input_keys: Sequence[str] = ("pixel_values",),
        max_new_tokens: int = 256,
        temperature: float = 1.0,
    ) -> None:
        super().__init__(model, tokenizer, max_new_tokens, temperature)
        self.input_keys = tuple(input_keys)
        settings = [getattr(model, name, None) for name in ("generation_config", "config")]
        starts = [getattr(setting, "decoder_start_token_id", None) for setting in settings]
        start = next((start for start in starts if start is not None), None)
        if start is None:
            raise ValueError("the model has no start token; set model.generation_config.decoder_start_token_id")
        self.start_token_id = int(start)

    @property
    def hidden_size(self) -> int:
        """Width of the decoder's last hidden states."""
        config = getattr(self.model.config, "decoder", self.model.config)
        return int(config.hidden_size)

    def sample(self, batch: Batch, *, greedy: bool = False) -> Completions:
        """Generate one completion for each row."""
        return self._generate({**self._inputs(batch), "decoder_start_token_id": self.start_token_id}, 1, greedy)

    def log_probs(self, batch: Batch, completions: Completions) -> TokenScores:
        """Return the scores of given completions."""
        tokens = completions.tokens.masked_fill(completions.mask == 0, self.tokenizer.pad_token_id)
        start = torch.full_like(tokens[:, :1], self.start_token_id)
        states: list[Tensor] = []
        with _recording_states(self.model, states):
            logits = self.model(
                **self._inputs(batch),
                decoder_input_ids=torch.cat([start, tokens[:, :-1]], dim=1),
                decoder_attention_mask=torch.cat([torch.ones_like(start), completions.mask[:, :-1]], dim=1),
                use_cache=False,
            ).logits
        return TokenScores.from_logits(logits, completions, self.temperature, states[-1] if states else None)

    def _inputs(self, batch: Batch) -> dict[str, Any]:
        if missing := [key for key in self.input_keys if key not in batch]:
            raise ValueError(f"the batch lacks {', '.join(missing)}; it has {', '.join(batch)}")
        return {key: batch[key] for key in self.input_keys}


@contextmanager
def _recording_states(model: Any, states: list[Tensor]) -> Iterator[None]:
    """Append the inputs of the language model head to ``states``, the hidden states from which tokens are predicted."""
    head = model.get_output_embeddings()
    if head is None:
        yield
        return
    handle = head.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    try:
        yield
    finally:
        handle.remove()


def is_sharded(model: nn.Module) -> bool:
    """Whether weights are sharded. All processes must then run the model equally often."""
    return num_processes() > 1 and holds_shards(model)


def holds_shards(model: nn.Module) -> bool:
    """Whether weights are managed by FSDP or ZeRO-3, in any number of processes."""
    return any(isinstance(part, FullyShardedDataParallel) for part in model.modules()) or any(
        hasattr(parameter, "ds_id") or isinstance(parameter, DTensor) for parameter in model.parameters()
    )
