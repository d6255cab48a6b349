"""A language model in this process as a judge."""

import asyncio
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rrg_rewards.judges.base import STOPPED, AnswerError, Item, Judge, JudgeFailure, JudgeTask, Message, Result
from rrg_rewards.judges.constrained import JsonGrammar, SchemaConstraint, can_constrain
from rrg_rewards.judges.sampling import Sampling
from rrg_rewards.models.loading import load_frozen
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.precision import own_precision
from rrg_rewards.utilities.signature import format_signature

__all__ = ["LocalJudge"]

_EXTRA = "local-judge"
_DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(eq=False, repr=False)
class LocalJudge(Judge):
    """Judge with a causal language model of transformers that runs in this process.

    Prompts are sorted by length, run in batches and padded on the left. Answers are decoded greedily, or drawn at
    random with ``temperature``; the model's own generation configuration is not used. With ``constrained`` only tokens
    that keep the answer valid under the task's JSON schema are allowed, so that an answer can only be malformed if it
    runs out of tokens.

    The model is loaded at the first evaluation, once per process for all judges of the same model
    (:func:`rrg_rewards.models.loading.load_frozen`). Each process loads the whole model, even if the policy trains
    under ZeRO-3. No text is sent to another machine. Weights load without executing pickled code, and code of the
    model's repository is never run. Evaluations run one after another in a thread, so that they do not block the
    caller's event loop.

    An item whose prompt leaves less than ``max_new_tokens`` of the model's context fails with ``status``. An answer
    that the task rejects fails with the task's kind. It is not generated again, because greedy decoding would return
    the same answer.

    Args:
        model: Folder or Hub id with weights, tokenizer and chat template.
        revision: Revision of a Hub id.
        dtype: ``"auto"`` (as stored), ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        device: Device; default: the CUDA device of this process if available, else the CPU.
        batch_size: Maximum number of items in a batch.
        max_new_tokens: Maximum number of tokens of an answer.
        constrained: Whether to constrain decoding, which needs the package llguidance; ``"auto"``: if it is installed.
        temperature: Temperature of sampling; 0 for greedy decoding. The draws of an item depend on the item, ``seed``
            and ``run``, not on the other items of its batch.
        seed: Seed of sampling.
        run: Number of the run, if the same items are evaluated several times.
        attention: Attention implementation of transformers, such as ``"sdpa"`` or ``"flash_attention_2"``; default:
            chosen by transformers.

    Raises:
        ValueError: For an unknown dtype, a size that is not positive, or an adapter without its base model; when
            loading, for a model without a chat template, or a tokenizer that cannot be constrained.
        FileNotFoundError: If ``model`` is a path that does not exist.
        OSError: When loading, if the model cannot be read.
        ModuleNotFoundError: When loading, if transformers or llguidance is not installed, naming the pip command.

    Example:
        >>> judge = LocalJudge("rajpurkarlab/medgemma-4b-it-crimson", dtype="bfloat16", constrained=False)
        >>> judge.signature
        'local|model:rajpurkarlab/medgemma-4b-it-crimson@main|dtype:bfloat16|max_new_tokens:2048|constrained:False|...'
    """

    model: str
    _: KW_ONLY
    revision: str | None = None
    dtype: str = "auto"
    device: str | None = None
    batch_size: int = 8
    max_new_tokens: int = 2048
    constrained: bool | Literal["auto"] = "auto"
    attention: str | None = None
    temperature: float = 0.0
    seed: int = 0
    run: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}; got {self.dtype!r}")
        for name, value in (("batch_size", self.batch_size), ("max_new_tokens", self.max_new_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be at least 0 and finite, got {self.temperature}")
        if self.constrained not in (True, False, "auto"):
            raise ValueError(f"constrained must be True, False or 'auto', got {self.constrained!r}")
        check_model_source(self.model)
        self.model = str(self.model)
        self._arguments = {argument.name: getattr(self, argument.name) for argument in fields(self)}
        self.constrained = can_constrain() if self.constrained == "auto" else self.constrained
        self._grammars: dict[str, JsonGrammar] = {}
        self._reruns: dict[int, LocalJudge] = {}
        # Simultaneous evaluations would need more memory and be no faster.
        self._turn = threading.Lock()

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge."""
        return dict(self._arguments)

    @property
    def signature(self) -> str:
        """Model, revision, and the settings that answers depend on."""
        sampling = {"temperature": self.temperature, "seed": self.seed, "run": self.run} if self.temperature else {}
        return format_signature(
            "local",
            model=f"{self.model}@{self.revision or 'main'}",
            dtype=self.dtype,
            max_new_tokens=self.max_new_tokens,
            constrained=self.constrained,
            **sampling,
        )

    def rerun(self, run: int) -> "LocalJudge":
        """Return this judge with the random draws of another run.

        Raises:
            ValueError: If the temperature is 0, at which each run would return the same answer.
        """
        if run == 0:
            return self
        if self.temperature == 0:
            raise ValueError("runs at temperature 0 return the same answer; set temperature, such as 0.7")
        if run not in self._reruns:
            self._reruns[run] = LocalJudge(**{**self._arguments, "run": self.run + run})
        if self.is_stopped:
            self._reruns[run].stop()
        return self._reruns[run]

    def stop(self) -> None:
        """See :meth:`rrg_rewards.judges.Judge.stop`; the other runs are stopped, too."""
        super().stop()
        for judge in self._reruns.values():
            judge.stop()

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate items in a thread; see :meth:`rrg_rewards.judges.Judge.evaluate`."""
        return await asyncio.to_thread(self._evaluate, task, list(items))

    def _evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        outcomes: dict[Item, Result | JudgeFailure] = {}
        with self._turn, own_precision():
            for item in dict.fromkeys(items):
                if (failure := task.refusal(item)) is not None:
                    outcomes[item] = failure
            asked = [item for item in dict.fromkeys(items) if item not in outcomes]
            prompts = {item: self._encode(task.messages(item)) for item in asked}
            for item, prompt in prompts.items():
                if (failure := self._too_long(len(prompt))) is not None:
                    outcomes[item] = failure
            fitting = sorted((item for item in prompts if item not in outcomes), key=lambda item: len(prompts[item]))
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
            # For a template without system messages, put the instructions before the item.
            content = "\n\n".join(message["content"] for message in messages)
            return self._templated([{"role": "user", "content": content}])

    def _templated(self, messages: list[Message]) -> list[int]:
        encoded = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(encoded["input_ids"])

    def _too_long(self, length: int) -> JudgeFailure | None:
        context = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        if context is None or length + self.max_new_tokens <= context:
            return None
        reason = f"{length} prompt and {self.max_new_tokens} answer tokens exceed the model's context of {context}"
        return JudgeFailure("status", reason)

    @torch.inference_mode()
    def _generate(self, prompts: Sequence[list[int]], task: JudgeTask[Any, Any]) -> Iterator[str]:
        longest = max(map(len, prompts))
        pad = self._tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        # The mask is not computed from the padding token, which may also occur in a prompt.
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        processors: list[Any] = []
        if self.constrained:
            processors.append(SchemaConstraint(self._grammar(task), len(prompts), longest))
        if self.temperature:
            processors.append(Sampling(prompts, self.temperature, self.seed, self.run))
        device = next(self._model.parameters()).device
        model: Any = self._model
        generated: Tensor = model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=self.max_new_tokens,
            logits_processor=processors,
            # Each process has the whole model, so generation needs no other process under ZeRO-3.
            synced_gpus=False,
        )
        return (self._decode(answer) for answer in generated[:, longest:].tolist())

    def _decode(self, answer: list[int]) -> str:
        end = next((index for index, token in enumerate(answer) if token in self._ends), len(answer))
        return str(self._tokenizer.decode(answer[:end], skip_special_tokens=True))

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
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            self.model, revision=self.revision, trust_remote_code=False
        )
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
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        model, revision=revision, dtype=dtype, **settings, trust_remote_code=False
    )
    # Decode greedily. Of the repository's generation configuration, use only the special tokens.
    suggested = loaded.generation_config
    ends = suggested.eos_token_id if suggested.eos_token_id is not None else loaded.config.eos_token_id
    if ends is None:
        raise ValueError(
            f"{model} defines no token that ends an answer; set eos_token_id in its generation_config.json"
        )
    pad = suggested.pad_token_id if suggested.pad_token_id is not None else (ends if isinstance(ends, int) else ends[0])
    loaded.generation_config = transformers.GenerationConfig(
        do_sample=False, bos_token_id=suggested.bos_token_id, eos_token_id=ends, pad_token_id=pad
    )
    built: nn.Module = loaded
    return built
