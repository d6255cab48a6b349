"""The metrics' formulas as pure functions on tensors."""

from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.functional.crepe import CrepeLoss, crepe_loss, crepe_score
from rrg_rewards.functional.crg import (
    CRGWeights,
    LabelCounts,
    crg_contributions,
    crg_multilevel_score,
    crg_score,
    crg_score_from_counts,
    crg_weights,
    label_counts,
    label_statistics,
    label_table,
)
from rrg_rewards.functional.crimson import (
    CrimsonAttributeError,
    CrimsonEvaluation,
    CrimsonFinding,
    CrimsonStatistics,
    crimson_score,
    crimson_score_from_statistics,
    crimson_statistics,
)
from rrg_rewards.functional.ct_finebench import compare_answers, ct_finebench_score
from rrg_rewards.functional.rank_correlation import kendall_tau

__all__ = [
    "CRGWeights",
    "CrepeLoss",
    "CrimsonAttributeError",
    "CrimsonEvaluation",
    "CrimsonFinding",
    "CrimsonStatistics",
    "LabelCounts",
    "bootstrap_interval",
    "compare_answers",
    "crepe_loss",
    "crepe_score",
    "crg_contributions",
    "crg_multilevel_score",
    "crg_score",
    "crg_score_from_counts",
    "crg_weights",
    "crimson_score",
    "crimson_score_from_statistics",
    "crimson_statistics",
    "ct_finebench_score",
    "kendall_tau",
    "label_counts",
    "label_statistics",
    "label_table",
]
