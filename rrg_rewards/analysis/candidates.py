"""Candidates for the reports of a table, which a judge evaluates."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from rrg_rewards.analysis.settings import CandidateSettings
from rrg_rewards.data.tables.table import Table
from rrg_rewards.judges.candidates import REGIMES, Regime, make_candidates
from rrg_rewards.models.loading import PretrainedModel
from rrg_rewards.utilities.precision import own_precision
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError


@dataclass(frozen=True)
class CandidateTable:
    """Result of :func:`add_candidates`.

    Args:
        table: The rows of the input, once for each candidate, with the columns ``candidate`` and ``regime``.
        reports: Number of references.
        blank: Number of missing and blank reports, which were left out.
        candidates: Number of candidates, by regime.
        declined: Number of candidates that could not be made, by regime.
    """

    table: Table
    reports: int
    blank: int
    candidates: dict[str, int]
    declined: Counter[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the counts."""
        counts = {"reports": self.reports, "blank": self.blank, "candidates": self.candidates}
        return {**counts, "declined": dict(self.declined)}


def add_candidates(
    table: Table, settings: CandidateSettings = CandidateSettings(), log: RunLog | None = None
) -> CandidateTable:
    """Make candidates for the reports of a table, as :func:`~rrg_rewards.judges.candidates.make_candidates`.

    Args:
        table: The table.
        settings: Columns, regimes and draws.
        log: Receives notes and warnings.

    Raises:
        SettingError: For an unknown regime, or a regime without its reports or its encoder.

    Example:
        >>> reports = Table({"report": ["Small left effusion.", "Cardiomegaly."]})
        >>> add_candidates(reports, CandidateSettings(regimes=["random"])).table.columns["candidate"]
        ['Cardiomegaly.', 'Small left effusion.']
    """
    log = log or RunLog()
    reports = table.texts(settings.report_column)
    kept = {row: text for row, text in enumerate(reports) if text is not None and text.strip()}
    if blank := len(table) - len(kept):
        log.warn(f"{blank} of {len(table)} reports are missing or blank, and are left out")
    rows, generated = list(kept), None
    if settings.generated_column is not None:
        texts = table.texts(settings.generated_column)
        generated = {number: text for number, row in enumerate(rows) if (text := texts[row]) is not None}
    regimes = [name for name in settings.regimes if name]
    try:
        made = make_candidates(
            list(kept.values()),
            cast(list[Regime], regimes),
            generated=generated,
            encoder=_encoder(settings.encoder),
            per_report=settings.per_report,
            modality=settings.modality,
            seed=settings.seed,
        )
    except ValueError as error:
        raise SettingError("regimes", str(error)) from error
    columns = {name: [cells[rows[number]] for number, _, _ in made.rows] for name, cells in table.columns.items()}
    if replaced := [name for name in ("candidate", "regime") if name in columns]:
        log.warn(f"the output replaces input columns of the same name: {', '.join(replaced)}")
    columns["candidate"] = [candidate for _, _, candidate in made.rows]
    columns["regime"] = [regime for _, regime, _ in made.rows]
    counts: dict[str, int] = {name: columns["regime"].count(name) for name in REGIMES if name in regimes}
    return CandidateTable(Table(columns), len(kept), blank, counts, made.declined)


def _encoder(encoder: Any) -> Callable[[Sequence[str]], Tensor] | None:
    return encoder if encoder is None or callable(encoder) else ReportEncoder(encoder)


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
