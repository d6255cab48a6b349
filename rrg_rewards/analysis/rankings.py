"""Rankings of candidate reports on which radiologists agree, and how many of them a metric reproduces."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.table import TableError
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.utilities.settings import SettingError

_RELATIONS = (">", "=", "<")


@dataclass(frozen=True)
class RankedCase:
    """A reference with candidates, and the order of the candidates.

    Args:
        name: Name of the case.
        category: Its category.
        reference: Reference report.
        candidates: Candidate reports by their names.
        context: Context of each candidate, such as ``age``, by its name.
        rankings: Relations of two candidates: ``C1 > C2`` or ``C1 = C2``. All hold.
    """

    name: str
    category: str
    reference: str
    candidates: Mapping[str, str]
    context: Mapping[str, Mapping[str, str]]
    rankings: tuple[str, ...]

    def holds(self, scores: Mapping[str, float], equal: float = 0.01) -> bool:
        """Whether scores of the candidates have all rankings; those that differ by at most ``equal`` are equal.

        Example:
            >>> case = RankedCase("1a", "", "Edema.", {"C1": "Edema.", "C2": "Clear."}, {}, ("C1 > C2",))
            >>> case.holds({"C1": 0.5, "C2": 0.2}), case.holds({"C1": 0.205, "C2": 0.2})
            (True, False)
        """
        for first, relation, second in map(str.split, self.rankings):
            # As written: 0.30 and 0.29 differ by 0.01.
            difference = round(scores[first] - scores[second], 9)
            sign = (difference > equal) - (difference < -equal)
            # A missing score has no relation.
            if difference != difference or _RELATIONS[1 - sign] != relation:
                return False
        return True


def read_ranked_cases(path: str | Path) -> list[RankedCase]:
    """Read ranked cases in the form of RadJudge's ``cases.json``.

    The file is a list of objects with ``ground_truth``, ``candidates`` (objects with ``text`` and perhaps ``context``
    by name), ``expected_ranking`` (a text or a list of texts), ``category`` and ``id``.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Section 4.2.

    Raises:
        TableError: If the file has another form, naming the case.
        OSError: If it cannot be read.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise TableError(f"{path}: is not JSON: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise TableError(f"{path}: must be a list of cases")
    return [_case(entry, f"{path}: case {number}", number) for number, entry in enumerate(entries, start=1)]


def _case(entry: Any, where: str, number: int) -> RankedCase:
    try:
        ranking = entry["expected_ranking"]
        case = RankedCase(
            str(entry.get("id", number)),
            str(entry.get("category", "")),
            entry["ground_truth"],
            {name: candidate["text"] for name, candidate in entry["candidates"].items()},
            {name: candidate.get("context") or {} for name, candidate in entry["candidates"].items()},
            (ranking,) if isinstance(ranking, str) else tuple(ranking),
        )
        parts = [text.split() for text in case.rankings]
    except (KeyError, TypeError, AttributeError) as error:
        raise TableError(f"{where}: is no ranked case: {type(error).__name__}: {error}") from None
    texts = [case.reference, *case.candidates.values()]
    if not parts or not all(isinstance(text, str) for text in texts):
        raise TableError(f"{where}: must have an expected_ranking, and texts as ground_truth and of each candidate")
    if not all(isinstance(own, Mapping) for own in case.context.values()):
        raise TableError(f"{where}: context must be an object of values by name")
    for one in parts:
        if len(one) != 3 or one[1] not in _RELATIONS or not {one[0], one[2]} <= case.candidates.keys():
            raise TableError(f"{where}, expected_ranking: must be as 'C1 > C2' or 'C1 = C2', got {' '.join(one)!r}")
    return case


def passed_rankings(
    cases: Sequence[RankedCase], metrics: Mapping[str, ReportMetric], equal: float = 0.01
) -> dict[str, dict[str, Any]]:
    """Return how many cases each metric passes, which means that its scores have all rankings of the case.

    Args:
        cases: The cases.
        metrics: The metrics by name. They get the context that they accept.
        equal: Maximum difference of equal scores.

    Returns:
        For each metric its ``signature``, the numbers of ``cases``, ``passed`` and ``unscored`` candidates,
        ``categories`` (category: passed and all cases), and the names of the ``failed`` cases.

    Raises:
        SettingError: If a metric does not say whether higher scores are better.

    Example:
        >>> from rrg_rewards.metrics import ROUGE
        >>> candidates = {"C1": "Edema.", "C2": "Clear."}
        >>> case = RankedCase("1a", "Omission", "Edema.", candidates, {"C1": {}, "C2": {}}, ("C1 > C2",))
        >>> passed_rankings([case], {"rouge": ROUGE()})["rouge"]["categories"]
        {'Omission': [1, 1]}
    """
    rows = [(case, name) for case in cases for name in case.candidates]
    known = dict.fromkeys(key for case, name in rows for key in case.context[name])
    found = {}
    for metric_name, metric in metrics.items():
        if metric.higher_is_better is None:
            raise SettingError(
                "metrics", f"{metric_name} does not say whether higher scores are better: set its higher_is_better"
            )
        context = {
            key: [case.context[name].get(key) for case, name in rows]
            for key in known
            if metric.context is None or key in metric.context
        }
        predictions, references = [case.candidates[name] for case, name in rows], [case.reference for case, _ in rows]
        scores = metric.score(predictions, references, **context).value.double().cpu()
        values = iter((scores if metric.higher_is_better else -scores).tolist())
        passed = [case.holds(dict(zip(case.candidates, values, strict=False)), equal) for case in cases]
        all_cases = Counter(case.category for case in cases)
        right = Counter(case.category for case, one in zip(cases, passed, strict=True) if one)
        found[metric_name] = {
            "signature": metric.signature,
            "cases": len(cases),
            "passed": sum(passed),
            "unscored": int(scores.isnan().sum()),
            "categories": {category: [right[category], count] for category, count in all_cases.items()},
            "failed": [case.name for case, one in zip(cases, passed, strict=True) if not one],
        }
    return found
