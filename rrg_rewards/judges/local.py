"""A language model in this process as a judge."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rrg_rewards.judges.base import AnswerError, Item, Judge, JudgeFailure, JudgeTask, Message, Result
from rrg_rewards.models.loading import load_frozen
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.precision import own_precision
from rrg_rewards.utilities.settings import SettingError, check_settings, setting
from rrg_rewards.utilities.signature import format_signature

_EXTRA = "local-judge"
_DTYPES = ("auto", "float32", "bfloat16", "float16")
# Enough for JSON with an indentation of 4. Without a limit, a weak model may generate only white space.
_WHITE_SPACE = r"[ \n]{0,20}"


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

    Raises:
        SettingError: For an unknown dtype, or a number that is out of its range.
        ValueError: For an adapter without its base model; when loading, for a model without a chat template, or a
            tokenizer that cannot be constrained.
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
    batch_size: int = setting(8, minimum=1)
    max_new_tokens: int = setting(2048, minimum=1)
    constrained: bool | Literal["auto"] = "auto"
    temperature: float = setting(0.0, minimum=0)
    seed: int = 0
    run: int = 0

    def __post_init__(self) -> None:
        check_settings(self)
        if self.dtype not in _DTYPES:
            raise SettingError("dtype", f"must be one of {', '.join(_DTYPES)}; got {shown(self.dtype)}")
        if self.constrained not in (True, False, "auto"):
            raise SettingError("constrained", f"must be True, False or 'auto', got {shown(self.constrained)}")
        check_model_source(self.model, "model")
        self.model = str(self.model)
        self._arguments = {argument.name: getattr(self, argument.name) for argument in fields(self)}
        self.constrained = find_spec("llguidance") is not None if self.constrained == "auto" else self.constrained
        self._grammars: dict[str, _JsonGrammar] = {}
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

    def _make_rerun(self, run: int) -> "LocalJudge":
        if self.temperature == 0:
            raise ValueError("runs at temperature 0 return the same answer; set temperature, such as 0.7")
        return LocalJudge(**{**self._arguments, "run": self.run + run})

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
        if self.constrained and task.schema:
            processors.append(_SchemaConstraint(self._grammar(task), len(prompts), longest))
        if self.temperature:
            processors.append(_Sampling(prompts, self.temperature, self.seed, self.run))
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

    def _grammar(self, task: JudgeTask[Any, Any]) -> "_JsonGrammar":
        if task.prompt_hash not in self._grammars:
            vocabulary = self._model.get_output_embeddings().weight.shape[0]
            grammar = _JsonGrammar(self._tokenizer, vocabulary, self._ends, task.schema)
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
        return load_frozen(_build, self.model, self.revision, self.dtype, device=self.device)


def _build(model: str, revision: str | None, dtype: str) -> nn.Module:
    transformers = require("transformers", extra=_EXTRA)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        model, revision=revision, dtype=dtype, trust_remote_code=False
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


class _JsonGrammar:
    """A JSON schema compiled to a grammar over a tokenizer's tokens.

    Args:
        tokenizer: A fast tokenizer of transformers.
        vocabulary: Number of the model's logits, which may exceed the size of the tokenizer's vocabulary.
        ends: Ids of the tokens that end an answer.
        schema: JSON schema of the answer.

    Raises:
        ModuleNotFoundError: If llguidance is not installed, naming the pip command.
        ValueError: If llguidance does not support the tokenizer or the schema.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Sequence[int], schema: Mapping[str, Any]) -> None:
        self.ends = list(ends)
        self._library = require("llguidance", extra=_EXTRA)
        adapter = require("llguidance.hf", extra=_EXTRA)
        try:
            self._tokenizer = adapter.from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=self.ends)
        except ValueError as error:
            raise ValueError(f"the tokenizer cannot be constrained, pass constrained=False: {error}") from error
        options = {"whitespace_flexible": True, "whitespace_pattern": _WHITE_SPACE}
        self._grammar = self._library.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)
        if problem := self._library.LLMatcher.validate_grammar(self._grammar, self._tokenizer):
            raise ValueError(f"the schema cannot constrain answers: {problem}")

    def matcher(self) -> Any:
        """Make a matcher for one answer."""
        return self._library.LLMatcher(self._tokenizer, self._grammar, log_level=0)


class _SchemaConstraint:
    """A logits processor of transformers that allows only tokens of the grammar in each answer of a batch.

    Args:
        grammar: Grammar of the answers.
        rows: Number of answers.
        start: Number of tokens of the padded prompts.
    """

    def __init__(self, grammar: _JsonGrammar, rows: int, start: int) -> None:
        self._grammar = grammar
        self._matchers = [grammar.matcher() for _ in range(rows)]
        self._start = start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Set the scores of tokens that are not allowed to minus infinity.

        Raises:
            RuntimeError: If llguidance cannot parse an answer.
        """
        if input_ids.shape[1] > self._start:
            for matcher, token in zip(self._matchers, input_ids[:, -1].tolist(), strict=True):
                # Padding follows a finished answer.
                if not matcher.is_stopped():
                    matcher.consume_token(token)
        masks = [self._mask(matcher, scores.shape[1]) for matcher in self._matchers]
        allowed = torch.from_numpy(np.stack(masks)).to(scores.device)
        return scores.masked_fill(~allowed, float("-inf"))

    def _mask(self, matcher: Any, vocabulary: int) -> Any:
        if matcher.is_error():
            raise RuntimeError(f"constrained decoding failed: {matcher.get_error()}")
        allowed = np.zeros(vocabulary, dtype=bool)
        if matcher.is_stopped():
            # The JSON is complete.
            allowed[self._grammar.ends] = True
            return allowed
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        allowed[: len(bits)] = bits[:vocabulary]
        return allowed


class _Sampling:
    r"""A logits processor of transformers whose highest score is a token drawn from the model's distribution.

    With scores :math:`s` and independent Gumbel noise :math:`g`, :math:`\arg\max(s / T + g)` is distributed as
    :math:`\mathrm{softmax}(s / T)`, so that greedy decoding of the result draws an answer at temperature :math:`T`.
    Each prompt has its own generator, so its answer is the same in every batch.

    Source: Maddison, Tarlow and Minka, "A* sampling", NeurIPS 2014, Section 2.

    Args:
        prompts: Token ids of each prompt.
        temperature: Temperature, positive.
        seed: Seed of the draws.
        run: Number of the run; each run has other draws.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, run: int) -> None:
        self._temperature = temperature
        self._generators = [torch.Generator().manual_seed(_seed(prompt, seed, run)) for prompt in prompts]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002 (transformers' signature)
        """Return the scores divided by the temperature, with noise added."""
        # -log of exponentially distributed numbers is Gumbel noise.
        noise = torch.stack([torch.empty(scores.shape[1]).exponential_(generator=draws) for draws in self._generators])
        return scores.float() / self._temperature - noise.log().to(scores.device)


def _seed(prompt: Sequence[int], seed: int, run: int) -> int:
    content = repr((list(prompt), seed, run)).encode()
    # The generators take seeds of 63 bits.
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big") >> 1
