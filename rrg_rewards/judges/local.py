"""A language model in this process as a judge."""

import asyncio
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from rrg_rewards.judges.base import STOPPED, AnswerError, Judge, JudgeFailure, JudgeTask, Message
from rrg_rewards.judges.constrained import JsonGrammar, SchemaConstraint, can_constrain
from rrg_rewards.models.loading import load_frozen
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.signature import format_signature

__all__ = ["LocalJudge"]

_EXTRA = "local-judge"
_DTYPES = ("auto", "float32", "bfloat16", "float16")

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


class LocalJudge(Judge):
    """Judge with a causal language model of transformers, in this process.

    Prompts run in batches of similar length, padded on the left; answers are decoded greedily, without the settings of
    the model's own generation configuration. With ``constrained`` each token must keep the answer on its way to JSON of
    the task's schema, so that only an answer that runs out of tokens can be malformed.

    The model is loaded at the first item, once a process for all judges of the same model
    (:func:`rrg_rewards.models.loading.load_frozen`), whole on each process also where the policy trains under ZeRO-3.
    Nothing is sent anywhere; weights load without executing pickled code, and code of the model's repository is never
    run. Evaluations take turns and run in a thread, so that the caller's event loop stays free.

    An item whose prompt leaves less than ``max_new_tokens`` of the model's context is not run: it fails with
    ``status``. An answer that the task rejects fails with the task's kind; at the same settings it would be given
    again, so it is not asked for again.

    Args:
        model: Folder or Hub id with weights, tokenizer and chat template.
        revision: Revision of a Hub id.
        dtype: ``"auto"`` (as stored), ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        device: Where to run; default: this process' CUDA device where there is one, else the CPU.
        batch_size: Items run at once.
        max_new_tokens: Most tokens of an answer.
        constrained: Whether to constrain decoding, which takes the library llguidance; ``"auto"``: where it is
            installed.
        attention: Attention implementation of transformers, such as ``"sdpa"`` or ``"flash_attention_2"``; default:
            the library's choice.

    Raises:
        ValueError: For an unknown dtype, a size that is not positive, or an adapter without its base model; when
            loading, if there is no chat template, or the tokenizer cannot be constrained.
        FileNotFoundError: If ``model`` is a path and not there.
        ModuleNotFoundError: When loading, if transformers or llguidance is not installed, naming the pip command.

    Example:
        >>> judge = LocalJudge("rajpurkarlab/medgemma-4b-it-crimson", dtype="bfloat16", constrained=False)
        >>> judge.signature
        'local|model:rajpurkarlab/medgemma-4b-it-crimson@main|dtype:bfloat16|max_new_tokens:2048|constrained:False|...'
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
        batch_size: int = 8,
        max_new_tokens: int = 2048,
        constrained: bool | Literal["auto"] = "auto",
        attention: str | None = None,
    ) -> None:
        if dtype not in _DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}; got {dtype!r}")
        for name, value in (("batch_size", batch_size), ("max_new_tokens", max_new_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        if constrained not in (True, False, "auto"):
            raise ValueError(f"constrained must be True, False or 'auto', got {constrained!r}")
        check_model_source(model)
        self.model = str(model)
        self.revision = revision
        self.dtype = dtype
        self.device = device
        self.batch_size = batch_size
        self.max_new_tokens = max_new_tokens
        self.constrained = can_constrain() if constrained == "auto" else constrained
        self.attention = attention
        self._constrained_as_asked = constrained
        self._grammars: dict[str, JsonGrammar] = {}
        # One evaluation at a time: two would only share the device and double the memory.
        self._turn = threading.Lock()

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge."""
        return {
            "model": self.model,
            "revision": self.revision,
            "dtype": self.dtype,
            "device": self.device,
            "batch_size": self.batch_size,
            "max_new_tokens": self.max_new_tokens,
            "constrained": self._constrained_as_asked,
            "attention": self.attention,
        }

    @property
    def signature(self) -> str:
        """Model and revision, and the settings that shape answers."""
        return format_signature(
            "local",
            model=f"{self.model}@{self.revision or 'main'}",
            dtype=self.dtype,
            max_new_tokens=self.max_new_tokens,
            constrained=self.constrained,
        )

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate items in a thread; equal ones once.

        Args:
            task: What to ask.
            items: ``N`` items.

        Returns:
            For each item, in order, its result or why there is none.

        Raises:
            ValueError: If the model has no chat template, or the tokenizer cannot be constrained.
            OSError: If the model cannot be read.
            ModuleNotFoundError: If transformers or llguidance is not installed, naming the pip command.
        """
        return await asyncio.to_thread(self._evaluate, task, list(items))

    def _evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        if not items:
            return []
        outcomes: dict[Item, Result | JudgeFailure] = {}
        with self._turn:
            unique = list(dict.fromkeys(items))
            prompts = {item: self._encode(task.messages(item)) for item in unique}
            for item in unique:
                if (failure := self._unfit(len(prompts[item]))) is not None:
                    outcomes[item] = failure
            fitting = sorted((item for item in unique if item not in outcomes), key=lambda item: len(prompts[item]))
            for start in range(0, len(fitting), self.batch_size):
                batch = fitting[start : start + self.batch_size]
                if self.is_stopped:
                    outcomes.update(dict.fromkeys(batch, STOPPED))
                    continue
                answers = self._generate([prompts[item] for item in batch], task)
                for item, answer in zip(batch, answers, strict=True):
                    try:
                        outcomes[item] = task.parse(item, answer)
                    except AnswerError as error:
                        outcomes[item] = JudgeFailure(error.kind, str(error))
        return [outcomes[item] for item in items]

    def _encode(self, messages: list[Message]) -> list[int]:
        template_error = require("jinja2", extra=_EXTRA).TemplateError
        try:
            return self._templated(messages)
        except template_error:
            # Some templates know no system message. It stands before what it is about all the same.
            content = "\n\n".join(message["content"] for message in messages)
            return self._templated([{"role": "user", "content": content}])

    def _templated(self, messages: list[Message]) -> list[int]:
        encoded = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        ids: list[int] = encoded["input_ids"]
        return ids

    def _unfit(self, length: int) -> JudgeFailure | None:
        context = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        if context is None or length + self.max_new_tokens <= context:
            return None
        room = f"{length} tokens of prompt and {self.max_new_tokens} of answer do not fit into the model's {context}"
        return JudgeFailure("status", room)

    @torch.inference_mode()
    def _generate(self, prompts: Sequence[list[int]], task: JudgeTask[Any, Any]) -> Iterator[str]:
        """Answers of one batch."""
        longest = max(map(len, prompts))
        pad = self._tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        # Not by comparison with the padding token, which may be one of the prompt's.
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        processors = [SchemaConstraint(self._grammar(task), len(prompts), longest)] if self.constrained else []
        device = next(self._model.parameters()).device
        model: Any = self._model
        generated: Tensor = model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=self.max_new_tokens,
            logits_processor=processors,
            # Whole on each process: no other one need run along under ZeRO-3.
            synced_gpus=False,
        )
        return (self._decode(answer) for answer in generated[:, longest:].tolist())

    def _decode(self, answer: list[int]) -> str:
        end = next((place for place, token in enumerate(answer) if token in self._ends), len(answer))
        decoded: str = self._tokenizer.decode(answer[:end], skip_special_tokens=True)
        return decoded

    def _grammar(self, task: JudgeTask[Any, Any]) -> JsonGrammar:
        if task.prompt_hash not in self._grammars:
            vocabulary = self._model.get_output_embeddings().weight.shape[0]
            grammar = JsonGrammar(self._tokenizer, vocabulary, self._ends, task.schema)
            self._grammars[task.prompt_hash] = grammar
        return self._grammars[task.prompt_hash]

    @property
    def _ends(self) -> tuple[int, ...]:
        ends = self._model.generation_config.eos_token_id
        return (ends,) if isinstance(ends, int) else tuple(ends)

    @cached_property
    def _tokenizer(self) -> Any:
        transformers = require("transformers", extra=_EXTRA)
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.model, revision=self.revision)
        if not tokenizer.chat_template:
            raise ValueError(f"{self.model} has no chat template; a judge needs an instruction-tuned model")
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer

    @cached_property
    def _model(self) -> Any:
        return load_frozen(_build, self.model, self.revision, self.dtype, self.attention, device=self.device)


def _build(model: str, revision: str | None, dtype: str, attention: str | None) -> nn.Module:
    transformers = require("transformers", extra=_EXTRA)
    settings: Mapping[str, Any] = {} if attention is None else {"attn_implementation": attention}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, revision=revision, dtype=dtype, **settings)
    # Greedy, whatever a repository suggests for chats; only its tokens are its own to say.
    suggested = loaded.generation_config
    ends = suggested.eos_token_id if suggested.eos_token_id is not None else loaded.config.eos_token_id
    if ends is None:
        raise ValueError(f"{model} names no token that ends an answer; set eos_token_id in its generation_config.json")
    pad = suggested.pad_token_id if suggested.pad_token_id is not None else (ends if isinstance(ends, int) else ends[0])
    loaded.generation_config = transformers.GenerationConfig(
        do_sample=False, bos_token_id=suggested.bos_token_id, eos_token_id=ends, pad_token_id=pad
    )
    built: nn.Module = loaded
    return built
