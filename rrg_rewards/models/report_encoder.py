"""Embeddings of reports by an encoder of transformers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rrg_rewards.models.loading import PretrainedModel
from rrg_rewards.utilities.precision import own_precision


@dataclass
class ReportEncoder:
    """Encoder of transformers, such as BERT, whose token embeddings are averaged to one vector of a report.

    Args:
        model: Folder or Hub id with weights and tokenizer.
        revision: Revision of a Hub id.
        device: Device; default: as :func:`rrg_rewards.models.loading.process_device` chooses it.
        batch_size: Number of reports in a batch.
        max_tokens: Number of tokens after which reports are cut; the model's limit applies, too.

    Raises:
        FileNotFoundError: If ``model`` is a path that does not exist.
        ModuleNotFoundError: When encoding, if transformers is not installed, naming the pip command.
    """

    model: str
    revision: str | None = None
    device: str | None = None
    batch_size: int = 32
    max_tokens: int = 512

    def __post_init__(self) -> None:
        self._pretrained = PretrainedModel(self.model, revision=self.revision, device=self.device, dtype="auto")

    @torch.inference_mode()
    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Return the embeddings of ``N`` reports: float32 tensor ``(N, D)`` with rows of length 1."""
        order = sorted(range(len(reports)), key=lambda row: len(reports[row]))
        found: dict[int, Tensor] = {}
        with own_precision():
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                found.update(zip(rows, self._embed([reports[row] for row in rows]), strict=True))
        return torch.stack([found[row] for row in range(len(reports))]) if found else torch.zeros(0, 0)

    def _embed(self, reports: list[str]) -> Tensor:
        model, tokenizer = self._pretrained.model, self._pretrained.tokenizer
        limit = min(self.max_tokens, getattr(model.config, "max_position_embeddings", self.max_tokens))
        inputs = tokenizer(reports, padding=True, truncation=True, max_length=limit, return_tensors="pt")
        inputs = inputs.to(next(model.parameters()).device)
        states = model(**inputs).last_hidden_state.float()
        mask = inputs["attention_mask"].unsqueeze(-1)
        return nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1).cpu()
