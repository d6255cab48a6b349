"""Reports by vLLM, for the rows of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.models.ct_chat.config import CTChatConfig
from rrg_rewards.models.ct_chat.processor import tokenize_prompts
from rrg_rewards.training.policy.hf_generators import render_prompts, with_volume
from rrg_rewards.utilities.imports import require


class VLLMReports:
    """Generates the reports that ``CausalLMGenerator`` and ``CTChatGenerator`` generate, with vLLM.

    Args:
        model: Folder or Hub id of a language model or of CT-CHAT.
        processor: Processor of CT-CHAT, or tokenizer of another model.
        config: The model's configuration.
        max_new_tokens: Maximum length of a report in tokens.
        temperature: Temperature of sampling; 0 for greedy decoding.
        has_images: Whether the rows have volumes.
        options: Arguments of ``vllm.LLM``. The default of ``dtype`` is that of the saved weights.

    Raises:
        ImportError: If vLLM is not installed.
    """

    def __init__(
        self,
        model: str,
        processor: Any,
        config: Any,
        *,
        max_new_tokens: int,
        temperature: float,
        has_images: bool,
        options: Mapping[str, Any],
    ) -> None:
        vllm = require("vllm", extra="vllm")
        self.config, self._processor = config, processor
        self._is_ct_chat = isinstance(config, CTChatConfig)
        self._tokenizer = processor.tokenizer if self._is_ct_chat else processor
        self._has_images = has_images
        self._sampling = {"max_tokens": max_new_tokens, "temperature": temperature, "detokenize": False}
        # vLLM's own default replaces float32 by a shorter type, and the reports would be others.
        defaults: dict[str, Any] = {"dtype": config.dtype or "auto"}
        if self._is_ct_chat:
            defaults["limit_mm_per_prompt"] = {"image": int(has_images)}
        self._llm = vllm.LLM(model, **{**defaults, **options})

    def generate(self, rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[tuple[str, bool]]:
        """Return the report of each row, and whether it ends by itself.

        Args:
            rows: Rows with ``prompt``, a text or messages, and ``image`` if the rows have volumes.
            seeds: Seed of each row. With it, a report does not depend on the other rows.
        """
        vllm = require("vllm", extra="vllm")
        settings = [vllm.SamplingParams(**self._sampling, seed=seed) for seed in seeds]
        outputs = self._llm.generate(self._prompts(rows), settings, use_tqdm=False)
        found = [output.outputs[0] for output in outputs]
        texts = self._tokenizer.batch_decode([list(one.token_ids) for one in found], skip_special_tokens=True)
        return [(text, one.finish_reason == "stop") for text, one in zip(texts, found, strict=True)]

    def _prompts(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        prompts = [with_volume(row["prompt"]) if self._has_images else row["prompt"] for row in rows]
        texts, is_rendered = render_prompts(self._processor, prompts)
        found: list[dict[str, Any]] = [{"prompt_token_ids": self._ids(text, not is_rendered)} for text in texts]
        if self._has_images:
            for prompt, row in zip(found, rows, strict=True):
                prompt["multi_modal_data"] = {"image": row["image"]}
        return found

    def _ids(self, text: str, add_special_tokens: bool) -> list[int]:
        if self._is_ct_chat:
            return tokenize_prompts(self._tokenizer, [text], self.config.num_image_tokens, add_special_tokens)[0]
        ids: list[int] = self._tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]
        return ids
