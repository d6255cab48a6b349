"""Hugging Face models as report generators for reinforcement learning."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from transformers import GenerationConfig, ProcessorMixin

from rrg_rewards.training.generators import Batch, Completions, TokenScores

__all__ = ["CTChatGenerator", "CausalLMGenerator", "EncoderDecoderGenerator"]


class _Generator(nn.Module):
    """What the adapters share: settings of sampling, and decoding."""

    def __init__(self, model: nn.Module, tokenizer: Any, max_new_tokens: int, temperature: float) -> None:
        super().__init__()
        if max_new_tokens < 1 or not temperature > 0:
            raise ValueError(f"max_new_tokens and temperature must be positive, got {max_new_tokens} and {temperature}")
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
        """Texts of completions, without special tokens."""
        texts: list[str] = self.tokenizer.batch_decode(completions.token_lists(), skip_special_tokens=True)
        return texts

    def _generate(self, inputs: Mapping[str, Any], start: int, greedy: bool) -> Completions:
        bent = {"temperature": self.temperature, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
        config = GenerationConfig(
            do_sample=not greedy,
            max_new_tokens=self.max_new_tokens,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.end_token_ids,
            **({} if greedy else bent),
        )
        tokens = self.model.generate(**inputs, generation_config=config, synced_gpus=_is_sharded(self.model))
        return Completions.until_end(tokens[:, start:], self.end_token_ids)


class CausalLMGenerator(_Generator):
    """A causal language model, plain or with a processor that reads images, as a report generator.

    The loader gives batches that :meth:`collate` makes of rows with a ``prompt``, a text or a list of messages, and,
    where there is one, an ``image``.

    Args:
        model: A model for causal generation, or a PEFT model of one.
        processor: Its tokenizer, or a processor with one.
        max_new_tokens: Greatest length of a completion.
        temperature: Temperature of sampling.

    Raises:
        ValueError: If a number is not positive, or the tokenizer has no padding or end-of-sequence token.
    """

    def __init__(
        self, model: nn.Module, processor: Any, *, max_new_tokens: int = 256, temperature: float = 1.0
    ) -> None:
        tokenizer = processor.tokenizer if isinstance(processor, ProcessorMixin) else processor
        super().__init__(model, tokenizer, max_new_tokens, temperature)
        self.processor = processor
        parameters = inspect.signature(getattr(model, "get_base_model", lambda: model)().forward).parameters
        self._takes = {name for name in ("position_ids", "logits_to_keep") if name in parameters}

    @property
    def hidden_size(self) -> int:
        """Width of the model's last states."""
        config = self.model.config
        return int(getattr(config, "text_config", config).hidden_size)

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A batch of rows: the prompts as tensors of the model's inputs, and every column as a list.

        Raises:
            ValueError: If a row lacks its prompt, or only some rows have an image.
        """
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        if "prompt" not in columns:
            raise ValueError(f"rows must have a prompt, got columns {', '.join(columns)}")
        return {**columns, **self._inputs(columns["prompt"], columns.get("image"))}

    def sample(self, batch: Batch, *, greedy: bool = False) -> Completions:
        """Write one completion for each row."""
        inputs = _tensors(batch)
        return self._generate(inputs, inputs["input_ids"].shape[1], greedy)

    def log_probs(self, batch: Batch, completions: Completions) -> TokenScores:
        """Score given completions."""
        inputs = _tensors(batch)
        prompt_mask, count = inputs.pop("attention_mask"), completions.tokens.shape[1]
        mask = torch.cat([prompt_mask, completions.mask], dim=1)
        # Padding need not be a token that the model has an embedding of.
        tokens = completions.tokens.masked_fill(completions.mask == 0, self.tokenizer.pad_token_id)
        inputs |= {"input_ids": torch.cat([inputs["input_ids"], tokens], dim=1), "attention_mask": mask}
        if "position_ids" in self._takes:
            # As generation counts them, from the first token that is no padding.
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        options: dict[str, Any] = {"use_cache": False}
        if "logits_to_keep" in self._takes:
            options["logits_to_keep"] = count + 1
        states: list[Tensor] = []
        with _noting_states(self.model, states):
            logits = self.model(**inputs, **options).logits[:, -count - 1 : -1]
        return TokenScores.from_logits(
            logits, completions, self.temperature, states[-1][:, -count - 1 : -1] if states else None
        )

    def _inputs(self, prompts: Sequence[Any], images: Sequence[Any] | None) -> dict[str, Tensor]:
        conversational = not isinstance(prompts[0], str)
        if conversational:
            prompts = [
                self.processor.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
                for prompt in prompts
            ]
        given = {} if images is None else {"images": [[image] for image in images]}
        # Chat templates write special tokens themselves. Generation goes on from the last token.
        inputs = self.processor(
            text=list(prompts),
            padding=True,
            padding_side="left",
            add_special_tokens=not conversational,
            return_tensors="pt",
            **given,
        )
        names = inputs.keys() if given else ("input_ids", "attention_mask")
        return {name: inputs[name] for name in names}


class CTChatGenerator(CausalLMGenerator):
    """CT-CHAT as a report generator: each row has a volume, the path of its features or the features themselves.

    Args:
        model: :class:`rrg_rewards.models.CTChatForConditionalGeneration`, or a PEFT model of one.
        processor: Its :class:`rrg_rewards.models.CTChatProcessor`.
        max_new_tokens: Greatest length of a completion.
        temperature: Temperature of sampling.
    """

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A batch of rows with ``prompt``, messages without the volume, and ``image``.

        Raises:
            ValueError: If a row lacks its prompt or its volume, naming the row.
        """
        for index, row in enumerate(rows):
            if row.get("image") is None or "prompt" not in row:
                raise ValueError(f"row {index} must have a prompt and an image, got columns {', '.join(row)}")
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        prompts = [_with_volume(prompt) for prompt in columns["prompt"]]
        return {**columns, **self._inputs(prompts, columns["image"])}


class EncoderDecoderGenerator(_Generator):
    """An encoder-decoder as a report generator: images or text in, reports out.

    Args:
        model: A model such as ``VisionEncoderDecoderModel`` or T5, or a PEFT model of one.
        tokenizer: The decoder's tokenizer.
        input_keys: Columns of a batch that are the encoder's inputs, tensors under the model's names.
        max_new_tokens: Greatest length of a completion.
        temperature: Temperature of sampling.

    Raises:
        ValueError: If a number is not positive, or the tokenizer has no padding or end-of-sequence token, or the model
            no start token for its decoder.
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
        """Width of the decoder's last states."""
        config = getattr(self.model.config, "decoder", self.model.config)
        return int(config.hidden_size)

    def sample(self, batch: Batch, *, greedy: bool = False) -> Completions:
        """Write one completion for each row."""
        return self._generate({**self._inputs(batch), "decoder_start_token_id": self.start_token_id}, 1, greedy)

    def log_probs(self, batch: Batch, completions: Completions) -> TokenScores:
        """Score given completions."""
        tokens = completions.tokens.masked_fill(completions.mask == 0, self.tokenizer.pad_token_id)
        start = torch.full_like(tokens[:, :1], self.start_token_id)
        states: list[Tensor] = []
        with _noting_states(self.model, states):
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


def _tensors(batch: Batch) -> dict[str, Tensor]:
    """The model's inputs: what the adapters' ``collate`` has put beside the rows' columns, which are lists."""
    inputs = {name: column for name, column in batch.items() if isinstance(column, Tensor)}
    if "input_ids" not in inputs:
        raise ValueError(
            f"the batch lacks input_ids; give the loader the generator's collate; it has {', '.join(batch)}"
        )
    return inputs


def _with_volume(prompt: Any) -> Any:
    """A prompt whose last message of the user begins with its volume, as TRL puts it."""
    if isinstance(prompt, str):
        raise ValueError("a prompt of CT-CHAT must be a list of messages, got a text")
    first = next(index for index, message in enumerate(prompt) if message["role"] == "user")
    message = prompt[first]
    parts = [{"type": "image"}, {"type": "text", "text": message["content"]}]
    return [*prompt[:first], {**message, "content": parts}, *prompt[first + 1 :]]


@contextmanager
def _noting_states(model: Any, states: list[Tensor]) -> Iterator[None]:
    """Note what goes into the language head: the states that tokens are predicted from."""
    head = model.get_output_embeddings()
    if head is None:
        yield
        return
    handle = head.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    try:
        yield
    finally:
        handle.remove()


def _is_sharded(model: nn.Module) -> bool:
    """Whether weights lie spread over processes, so that all must run the model equally often."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return False
    return any(isinstance(part, FullyShardedDataParallel) for part in model.modules()) or any(
        hasattr(parameter, "ds_id") or isinstance(parameter, DTensor) for parameter in model.parameters()
    )
