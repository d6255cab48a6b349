"""Report generators that sample with vLLM in the training process."""

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from rrg_rewards.training.policy.adapters import adapted_layers
from rrg_rewards.training.policy.generators import Batch, Completions, TokenScores, num_rows
from rrg_rewards.training.policy.hf_generators import CausalLMGenerator, is_sharded
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.processes import num_processes, process_index
from rrg_rewards.utilities.vllm_cpu import keep_cpu_weights

_SEEDS = 2**31


class VLLMGenerator(nn.Module):
    """A report generator that samples with vLLM, and computes log-probabilities with the trained model.

    Each process starts an engine when it first samples. :class:`~rrg_rewards.training.PolicyModule` calls
    :meth:`update_engine` before it samples with changed weights. Completions contain the log-probabilities of vLLM,
    with which the module corrects the loss (``sampler_correction``), because vLLM rounds differently from the trainer.

    The engine reads the columns ``input_ids`` and ``attention_mask`` of a batch, and the volumes or images of the
    column ``image``, if the batch has one. The model must be one that vLLM supports, for example CT-CHAT, for which
    this package installs a plugin. Prompt and completion must fit into ``max_model_len``.

    Args:
        generator: Generator with the model that is trained.
        model_path: Folder or name of the model's checkpoint, which the engine loads at first. Default: the path from
            which the model was loaded.
        max_model_len: Greatest number of tokens of prompt and completion.
        gpu_memory_utilization: Share of the GPU's memory for the engine.
        engine_options: Further arguments of ``vllm.LLM``.

    Raises:
        ValueError: If the path of the checkpoint is unknown, or, in sampling, if weights are sharded (FSDP, ZeRO-3).
        ModuleNotFoundError: In sampling, if vLLM is not installed.

    Example:
        >>> from rrg_rewards.training import VLLMGenerator
        >>> # generator = CTChatGenerator(model, processor, max_new_tokens=640)
        >>> # PolicyModule(VLLMGenerator(generator, max_model_len=1280), reward)
    """

    def __init__(
        self,
        generator: CausalLMGenerator,
        *,
        model_path: str | None = None,
        max_model_len: int | None = None,
        gpu_memory_utilization: float = 0.35,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        path = model_path or getattr(generator.model, "name_or_path", "")
        if not path:
            raise ValueError("model_path: the model was not loaded from a checkpoint; save it and give the folder")
        self.generator = generator
        self.engine_options = {
            "model": str(path),
            "max_model_len": max_model_len,
            "gpu_memory_utilization": gpu_memory_utilization,
            **(engine_options or {}),
        }
        self._engine: Any = None

    @property
    def max_new_tokens(self) -> int:
        """Maximum length of a completion in tokens."""
        return self.generator.max_new_tokens

    @property
    def hidden_size(self) -> int:
        """Width of the model's last hidden states."""
        return self.generator.hidden_size

    @property
    def engine(self) -> Any:
        """The ``vllm.LLM`` of this process, which is started at first use."""
        if self._engine is None:
            self._engine = self._start()
        return self._engine

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate rows as the wrapped generator does."""
        return self.generator.collate(rows)

    def log_probs(self, batch: Batch, completions: Completions) -> TokenScores:
        """Return the scores of given completions under the trained model."""
        return self.generator.log_probs(batch, completions)

    def decode(self, completions: Completions) -> list[str]:
        """Return the texts of completions, without special tokens."""
        return self.generator.decode(completions)

    def sample(self, batch: Batch, *, greedy: bool = False) -> Completions:
        """Generate one completion for each row with vLLM, with the log-probabilities of its tokens."""
        params = require("vllm", extra="vllm").SamplingParams
        # Drawn here, so that a resumed run repeats the samples.
        seeds = torch.randint(_SEEDS, (num_rows(batch),)).tolist()
        settings = [
            params(
                temperature=0.0 if greedy else self.generator.temperature,
                max_tokens=self.max_new_tokens,
                stop_token_ids=self.generator.end_token_ids,
                logprobs=0,
                seed=seed,
                detokenize=False,
            )
            for seed in seeds
        ]
        outputs = self.engine.generate(_prompts(batch), settings, use_tqdm=False)
        return _completions([output.outputs[0] for output in outputs], self.generator.end_token_ids, batch)

    @torch.no_grad()
    def update_engine(self) -> None:
        """Copy the weights of the trained model to the engine, and reset the caches that depend on weights.

        Raises:
            ValueError: If each process has only a part of the weights.
        """
        if is_sharded(self.generator.model):
            raise ValueError("vLLM needs complete weights in each process: use DDP or ZeRO-2 instead of FSDP or ZeRO-3")
        engine = self.engine.llm_engine
        target = engine.model_executor.driver_worker.model_runner.model
        for named in checkpoint_weights(self.generator.model):
            target.load_weights([named])
        self.engine.reset_prefix_cache()
        # The cache contains outputs of the vision encoder and the projector, by image.
        engine.reset_encoder_cache()

    def __getstate__(self) -> dict[str, Any]:
        # A copy, such as a reference policy, starts an engine of its own if it samples.
        return {**self.__dict__, "_engine": None}

    def _start(self) -> Any:
        vllm = require("vllm", extra="vllm")
        if vllm.platforms.current_platform.is_cpu():
            keep_cpu_weights()
        options: dict[str, Any] = {"seed": process_index()}
        # The engine must run in this process, so that weights can be copied.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if num_processes() > 1:
            os.environ.update(RANK=str(process_index()), WORLD_SIZE=str(num_processes()))
            options["distributed_executor_backend"] = "external_launcher"
        options["dtype"] = str(self.generator.model.dtype).removeprefix("torch.")
        # At the temperature of sampling, as the trainer's log-probabilities.
        options["logprobs_mode"] = "processed_logprobs"
        return vllm.LLM(**options | self.engine_options)


def _prompts(batch: Batch) -> list[dict[str, Any]]:
    if "input_ids" not in batch:
        raise ValueError(
            f"the batch lacks input_ids; give the loader the generator's collate; it has {', '.join(batch)}"
        )
    images = batch.get("image")
    prompts: list[dict[str, Any]] = []
    for row, (ids, mask) in enumerate(zip(batch["input_ids"], batch["attention_mask"], strict=True)):
        image = None if images is None else images[row]
        given = {} if image is None else {"multi_modal_data": {"image": image}}
        prompts.append({"prompt_token_ids": ids[mask.bool()].tolist(), **given})
    return prompts


def _completions(outputs: Sequence[Any], end_token_ids: Sequence[int], batch: Batch) -> Completions:
    device = batch["input_ids"].device
    tokens = [torch.tensor(list(output.token_ids), device=device) for output in outputs]
    scores = [
        torch.tensor(
            [logprobs[token].logprob for token, logprobs in zip(output.token_ids, output.logprobs, strict=True)]
        )
        for output in outputs
    ]
    ends = torch.tensor(end_token_ids, device=device)
    finished = torch.stack([torch.isin(ids[-1], ends) for ids in tokens])
    return Completions(
        _padded(tokens), _padded([torch.ones_like(ids) for ids in tokens]), finished, _padded(scores).to(device)
    )


def _padded(rows: list[Tensor]) -> Tensor:
    return pad_sequence(rows, batch_first=True)


def checkpoint_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a model under the names of its checkpoint, with PEFT adapters merged.

    The model is not changed: layers with adapters are copied one at a time, because merging and unmerging in place
    would add rounding errors to the base weights at each call.

    Args:
        model: A Hugging Face model, or a PEFT model that wraps one.

    Example:
        >>> from torch import nn
        >>> [name for name, _ in checkpoint_weights(nn.Sequential(nn.Linear(2, 1)))]
        ['0.weight', '0.bias']
    """
    adapted = adapted_layers(model)
    for name, parameter in model.named_parameters():
        if not any(name.startswith(f"{layer}.") for layer in adapted) and ".original_module." not in name:
            yield _checkpoint_name(name), parameter.data
    for name, module in adapted.items():
        merged: Any = copy.deepcopy(module)
        merged.merge()
        for part, parameter in merged.get_base_layer().named_parameters():
            yield _checkpoint_name(f"{name}.{part}"), parameter.data


def _checkpoint_name(name: str) -> str:
    return name.removeprefix("base_model.model.").replace("modules_to_save.default.", "")
