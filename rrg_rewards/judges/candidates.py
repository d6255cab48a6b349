"""Candidate reports for a judge to evaluate, by the regimes of CRIMSON's training data."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.findings.editing.inject_errors import inject_errors
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.random_draws import Draws, seeded_draws

Regime = Literal["generated", "random", "matched", "edited"]
"""``generated``: the report of a model. ``random``: the report of another study. ``matched``: the most similar report
of another study. ``edited``: the reference with injected errors."""

REGIMES: tuple[Regime, ...] = get_args(Regime)
# Maximum number of similarities that are computed in one operation; limits the memory.
_PAIRS_AT_ONCE = 2**24


@dataclass
class Candidates:
    """Candidates for references.

    Args:
        rows: ``(row of the reference, regime, candidate)`` of each candidate.
        declined: Number of candidates that could not be made, by regime.
    """

    rows: list[tuple[int, Regime, str]] = field(default_factory=list)
    declined: Counter[str] = field(default_factory=Counter)


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
) -> Candidates:
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
            such as :class:`rrg_rewards.analysis.candidates.ReportEncoder`.
        per_report: Number of candidates for each reference.
        modality: Modality of invented findings, as for ``inject_errors``.
        seed: Seed of all draws.

    Raises:
        ValueError: For an unknown regime, or a regime without its reports or its encoder.

    Example:
        >>> found = make_candidates(["Small left effusion.", "Cardiomegaly."], ["random"])
        >>> found.rows
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
    result = Candidates()
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
                result.declined[regime] += 1
            else:
                made[candidate] = regime
        result.rows += [(row, regime, candidate) for candidate, regime in made.items()]
    return result


def _random_other(reports: Sequence[str], row: int, draws: Draws) -> str | None:
    """Return the report of another study with another text; ``None`` if a few draws find none."""
    for _ in range(8):
        other = reports[min(int(draws.uniform() * len(reports)), len(reports) - 1)]
        if other != reports[row]:
            return other
    return None
