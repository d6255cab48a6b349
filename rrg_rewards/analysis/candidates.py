"""Candidates for the reports of a table, which a judge evaluates."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from rrg_rewards.analysis.settings import CandidateSettings
from rrg_rewards.data.tables.table import Table
from rrg_rewards.findings.editing.inject_errors import inject_errors
from rrg_rewards.models.loading import PretrainedModel
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.precision import own_precision
from rrg_rewards.utilities.random_draws import Draws, seeded_draws
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

Regime = Literal["generated", "random", "matched", "edited"]
"""``generated``: the report of a model. ``random``: the report of another study. ``matched``: the most similar report
of another study. ``edited``: the reference with injected errors."""

REGIMES: tuple[Regime, ...] = get_args(Regime)
# Maximum number of similarities that are computed in one operation; limits the memory.
_PAIRS_AT_ONCE = 2**24


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
    """Make candidates for the reports of a table, as :func:`make_candidates`.

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
        made, declined = make_candidates(
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
    columns = {name: [cells[rows[number]] for number, _, _ in made] for name, cells in table.columns.items()}
    if replaced := [name for name in ("candidate", "regime") if name in columns]:
        log.warn(f"the output replaces input columns of the same name: {', '.join(replaced)}")
    columns["candidate"] = [candidate for _, _, candidate in made]
    columns["regime"] = [regime for _, regime, _ in made]
    counts: dict[str, int] = {name: columns["regime"].count(name) for name in REGIMES if name in regimes}
    return CandidateTable(Table(columns), len(kept), blank, counts, declined)


def nearest_others(reports: Sequence[str], embeddings: Tensor) -> list[int | None]:
    """Return for each report the row of the most similar report with another text.

    Args:
        reports: ``N`` reports.
        embeddings: ``(N, D)`` vectors of length 1; the similarity is their product.

    Returns:
        ``N`` rows; ``None`` if all reports have the same text. Of equally similar reports, the first.

    Example:
        >>> nearest_others(["a", "b", "c", "a"], torch.eye(3)[[0, 1, 1, 0]])
        [1, 2, 1, 1]
    """
    keys = {text: number for number, text in enumerate(dict.fromkeys(reports))}
    texts = torch.tensor([keys[report] for report in reports])
    if len(keys) < 2:
        return [None] * len(reports)
    step = max(1, _PAIRS_AT_ONCE // len(reports))
    nearest: list[int | None] = []
    for start in range(0, len(reports), step):
        rows = slice(start, start + step)
        similar = embeddings[rows] @ embeddings.T
        nearest += similar.masked_fill(texts[rows, None] == texts, -torch.inf).argmax(1).tolist()
    return nearest


def make_candidates(
    reports: Sequence[str],
    regimes: Sequence[Regime] = ("random", "edited"),
    *,
    generated: Mapping[int, str] | None = None,
    encoder: Callable[[Sequence[str]], Tensor] | None = None,
    per_report: int = 1,
    modality: str | None = None,
    seed: int = 0,
) -> tuple[list[tuple[int, Regime, str]], Counter[str]]:
    """Make candidates for references. The regime of each candidate is drawn, all equally likely.

    A candidate that its regime cannot provide is counted as declined and not replaced. A report gets no candidate
    twice.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Sections 4.3 and 4.4. There a language model edits reports;
    here :func:`rrg_rewards.findings.inject_errors` does.

    Args:
        reports: ``N`` reference reports.
        regimes: Regimes to draw from.
        generated: A model's report by row, for the regime ``generated``.
        encoder: Function that returns the embeddings of reports, ``(N, D)`` of length 1, for the regime ``matched``,
            such as :class:`ReportEncoder`.
        per_report: Number of candidates for each reference.
        modality: Modality of invented findings, as for ``inject_errors``.
        seed: Seed of all draws.

    Returns:
        ``(row of the reference, regime, candidate)`` of each candidate, and the number of candidates that could not be
        made, by regime.

    Raises:
        ValueError: For an unknown regime, or a regime without its reports or its encoder.

    Example:
        >>> made, declined = make_candidates(["Small left effusion.", "Cardiomegaly."], ["random"])
        >>> made
        [(0, 'random', 'Cardiomegaly.'), (1, 'random', 'Small left effusion.')]
    """
    for regime in regimes:
        if regime not in REGIMES:
            raise ValueError(unknown_name_message("regime", regime, REGIMES))
    if not regimes:
        raise ValueError(f"regimes must name at least one of {', '.join(REGIMES)}")
    for name, given in (("generated", generated), ("matched", encoder)):
        if name in regimes and given is None:
            raise ValueError(f"the regime {name} needs {'reports of a model' if name == 'generated' else 'an encoder'}")
    nearest = nearest_others(reports, encoder(reports)) if encoder is not None and "matched" in regimes else []
    rows: list[tuple[int, Regime, str]] = []
    declined: Counter[str] = Counter()
    for row, report in enumerate(reports):
        draws = seeded_draws(seed, str(row), report)
        made: dict[str, Regime] = {}
        for number in range(per_report):
            regime = draws.pick(regimes)
            if regime == "generated":
                candidate = (generated or {}).get(row)
            elif regime == "matched":
                other = nearest[row]
                candidate = None if other is None else reports[other]
            elif regime == "random":
                candidate = _random_other(reports, row, draws)
            else:
                injected = inject_errors(report, seed=seed * per_report + number, modality=modality)
                candidate = None if injected is None else injected.candidate
            if candidate is None or candidate in made:
                declined[regime] += 1
            else:
                made[candidate] = regime
        rows += [(row, regime, candidate) for candidate, regime in made.items()]
    return rows, declined


def _random_other(reports: Sequence[str], row: int, draws: Draws) -> str | None:
    """Return the report of another study with another text; ``None`` if a few draws find none."""
    for _ in range(8):
        other = reports[min(int(draws.uniform() * len(reports)), len(reports) - 1)]
        if other != reports[row]:
            return other
    return None


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
