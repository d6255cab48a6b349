"""An ER²Score model at work: report pairs to rewards, with what candidates of a reference have in common run once."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rrg_rewards.models.er2score_encoding import PromptEncoder, TokenizedPrompt
from rrg_rewards.models.er2score_prompt import PromptTemplate
from rrg_rewards.models.loading import load_frozen
from rrg_rewards.models.packing import packed_batches
from rrg_rewards.models.pair_predictor import PairPredictor, Precision
from rrg_rewards.schemas import ScoringSystem
from rrg_rewards.utilities.imports import require

__all__ = ["ER2ScorePredictor"]


class _Batch(NamedTuple):
    """Prompts that run together: with a number of rows each in one forward, after their prefixes where they share."""

    shared: bool
    rows: list[int]


class ER2ScorePredictor(PairPredictor):
    """Reward candidate reports by the criteria of an ER²Score model.

    Pairs become prompts (:class:`rrg_rewards.models.er2score_encoding.PromptEncoder`), and equal pairs run once. Where
    prompts of several candidates begin alike, as those of one reference do, the beginning is run once and kept, and
    each candidate goes on from there; other prompts run in one piece. Either way batches hold prompts of similar length
    and ``token_budget`` tokens at most, padding and what is kept included. Rewards are the same but for rounding.

    The model is loaded at the first pair, once a process for all who use the same, with its adapter merged. In
    ``"bfloat16"`` and ``"float16"`` the backbone's weights are of that type; the head stays in float32. Weights load
    from safetensors, and nothing is sent anywhere.

    Args:
        model: Folder or Hub id of an ER²Score model, or a :class:`rrg_rewards.models.ER2ScoreModel`.
        tokenizer: The tokenizer, or its folder or Hub id; default: the model's.
        backbone: Folder or Hub id of the backbone under an adapter, where it has moved.
        max_length: Tokens of a prompt at most; default: as the model was trained.
        token_budget: Tokens of a batch at most; a longer prompt runs alone.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        device: Where a loaded model runs; default: this process' CUDA device where there is one, else the CPU.
        revision: Revision of a Hub id.
        share_prefix: Whether common beginnings are run once.
        progress: Whether a bar on stderr shows how far a call is.

    Raises:
        FileNotFoundError: If there is no such folder, or it holds no ER²Score model.
        ValueError: If a setting is unknown or out of range, the configuration is of another model, or a model object
            has no tokenizer and none is given; when called, if a reward is not finite.
    """

    title = "ER2Score"
    _advice = "each report keeps its first tokens; max_length says how many a prompt may have"

    def __init__(
        self,
        model: str | Path | nn.Module,
        tokenizer: Any = None,
        *,
        backbone: str | Path | None = None,
        max_length: int | None = None,
        token_budget: int = 8192,
        dtype: Precision = "float32",
        device: str | None = None,
        revision: str | None = None,
        share_prefix: bool = True,
        progress: bool = False,
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            token_budget=token_budget,
            dtype=dtype,
            device=device,
            revision=revision,
            progress=progress,
        )
        self.backbone = None if backbone is None else str(backbone)
        self.share_prefix = share_prefix
        self.config = self._read_config()
        self.scoring_system: ScoringSystem = self.config.system
        self.max_length = self._checked_length(max_length)
        if self._given is not None and tokenizer is None and getattr(self._given, "tokenizer", None) is None:
            raise ValueError("a model given as an object needs its tokenizer")

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this predictor.

        Raises:
            TypeError: If the model was given as an object, which is no argument to be written down.
        """
        return {**super().arguments(), "backbone": self.backbone, "share_prefix": self.share_prefix}

    @property
    def prompt(self) -> PromptTemplate:
        """The template of the model."""
        return PromptTemplate(self.config.prompt)

    @property
    def weights_name(self) -> str:
        """The model by name and first digits of the SHA-256 of what was trained; an adapter's backbone by name."""
        name = super().weights_name
        if self._given is not None or self.config.lora is None:
            return name
        if self.backbone is not None:
            return f"{name}+{Path(self.backbone).name}"
        revision = "" if self.config.backbone_revision is None else f"@{self.config.backbone_revision[:8]}"
        return f"{name}+{Path(self.config.backbone or 'backbone').name}{revision}"

    @cached_property
    def encoder(self) -> PromptEncoder:
        """What makes prompts of report pairs."""
        return PromptEncoder(self._tokenizer, self.prompt.with_criteria(self.scoring_system), self.max_length)

    @property
    def _num_outputs(self) -> int:
        return len(self.scoring_system.criteria)

    def _predict(self, references: Sequence[str], candidates: Sequence[str]) -> Tensor:
        """Rewards, what each criterion contributes to the total."""
        prompts = self.encoder(references, candidates)
        self._tell_of_long_pairs(sum(prompt.num_cut > 0 for prompt in prompts), len(prompts))
        rewards = torch.empty(len(prompts), self._num_outputs)
        with self._at_work():
            for batch in self._shown(self._batches(prompts)):
                for rows, found in self._run(prompts, batch):
                    rewards[rows] = found.float().cpu()
        # Not NaN, which would pass for pairs that cannot be scored.
        if not bool(rewards.isfinite().all()):
            advice = "; bfloat16 has the range of float32" if self.dtype == "float16" else ""
            raise ValueError(f"{self.model} gives rewards that are not finite in {self.dtype}{advice}")
        return rewards

    def _batches(self, prompts: Sequence[TokenizedPrompt]) -> list[_Batch]:
        """Prompts that share a prefix with another, by their prefixes, and those that do not, by their lengths."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, prompt in enumerate(prompts):
            groups.setdefault(prompt.prefix, []).append(row)
        shared = [rows for rows in groups.values() if self.share_prefix and len(rows) > 1]
        alone = [row for rows in groups.values() if not (self.share_prefix and len(rows) > 1) for row in rows]
        lengths = [len(prompts[rows[0]].prefix) for rows in shared]
        packed = packed_batches(lengths, self.token_budget, self.batch_cost)
        together = [_Batch(True, [row for group in batch for row in shared[group]]) for batch in packed]
        packed = packed_batches([len(prompts[row]) for row in alone], self.token_budget, self.batch_cost)
        return [*together, *(_Batch(False, [alone[place] for place in batch]) for batch in packed)]

    def _run(self, prompts: Sequence[TokenizedPrompt], batch: _Batch) -> Iterator[tuple[list[int], Tensor]]:
        """Rows and their rewards."""
        model: Any = self._model
        chosen = [prompts[row] for row in batch.rows]
        if not batch.shared:
            yield batch.rows, model(**self._placed(self.encoder.collate(chosen))).rewards
            return
        prefixes = self._placed(self.encoder.collate_prefixes(chosen))
        owners = prefixes.pop("owner")
        read = model.read_prefixes(**prefixes)
        # What is kept of a prefix, its padding included, is kept for each row that goes on from it.
        kept = read.mask.shape[1]
        lengths = [kept + len(prompt.suffix) for prompt in chosen]
        for places in packed_batches(lengths, self.token_budget, self.batch_cost):
            suffixes = self._placed(self.encoder.collate_suffixes([chosen[place] for place in places]))
            yield (
                [batch.rows[place] for place in places],
                model.continue_prefixes(read, **suffixes, owner=owners[places]).rewards,
            )

    def _placed(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: values.to(self._place) for name, values in batch.items()}

    def _load(self) -> nn.Module:
        return load_frozen(_build, self.model, self.revision, self.backbone, self.dtype, device=self.device)

    def _weight_files(self) -> list[Path]:
        folder = self._weights.locate_model(self.model, self.revision)
        files: list[Path] = self._weights.weight_files(folder, adapted=self.config.lora is not None)
        return files

    @property
    def _weights(self) -> Any:
        return require("rrg_rewards.models.er2score_weights", extra="models")

    @cached_property
    def _tokenizer(self) -> Any:
        if self.tokenizer is not None and not isinstance(self.tokenizer, str | Path):
            return self.tokenizer
        if self.tokenizer is not None:
            return self._weights.load_tokenizer(self.tokenizer)
        found = self._model.tokenizer
        if found is None:
            raise ValueError(f"{self.model} comes without a tokenizer; give one: tokenizer=")
        return found

    def _read_config(self) -> Any:
        configs: Any = require("rrg_rewards.models.er2score_config", extra="models")
        if self._given is None:
            return configs.read_er2score_config(self._weights.locate_model(self.model, self.revision))
        config = getattr(self._given, "config", None)
        if not isinstance(config, configs.ER2ScoreConfig):
            raise ValueError(f"model must be an ER2ScoreModel, a folder or a Hub id, got {self.model}")
        return config

    def _checked_length(self, max_length: int | None) -> int:
        limit = getattr(self.config.backbone_config, "max_position_embeddings", None)
        if max_length is None:
            trained: int = self.config.max_prompt_length
            return trained
        if limit is not None and max_length > limit:
            raise ValueError(f"max_length is {max_length}, but the backbone takes {limit} tokens at most")
        return max_length


def _build(model: str, revision: str | None, backbone: str | None, dtype: Precision) -> nn.Module:
    er2score: Any = require("rrg_rewards.models.er2score", extra="models")
    built = er2score.ER2ScoreModel.from_pretrained(
        model, backbone=backbone, revision=revision, dtype=getattr(torch, dtype)
    )
    # Fewer multiplications for the same scores; quantised weights would lose what is added to them.
    mergeable = built.config.lora is not None and built.config.quantization is None
    merged: nn.Module = built.merge_adapter() if mergeable else built
    return merged
