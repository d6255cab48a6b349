"""The formulas of the metrics and the objectives of reinforcement learning, as pure functions on tensors."""

from rrg_rewards.functional.advantages import (
    decoupled_advantages,
    generalized_advantages,
    greedy_baseline_advantages,
    group_advantages,
    group_deviations,
    leave_one_out_advantages,
)
from rrg_rewards.functional.agreement import (
    agreement_interval,
    agreement_permutation_test,
    human_agreement,
    perm_both_test,
)
from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.functional.chance import normal_reference_weight
from rrg_rewards.functional.correlation import kendall_tau, spearman_rho
from rrg_rewards.functional.crepe import CrepeLoss, crepe_loss, crepe_score
from rrg_rewards.functional.crg import (
    CRGWeights,
    crg_best_constant,
    crg_contributions,
    crg_label_weights,
    crg_macro_score_from_counts,
    crg_score,
    crg_score_from_counts,
    crg_weights,
    label_table,
)
from rrg_rewards.functional.crg_levels import crg_multilevel_score
from rrg_rewards.functional.crimson import (
    CrimsonAttributeError,
    CrimsonEvaluation,
    CrimsonFinding,
    CrimsonStatistics,
    StatedDetails,
    StatedPlace,
    crimson_score,
    crimson_score_from_statistics,
    crimson_statistics,
)
from rrg_rewards.functional.crimson_training import (
    CrimsonTrainingStatistics,
    crimson_training_score,
    crimson_training_score_from_statistics,
    crimson_training_statistics,
)
from rrg_rewards.functional.ct_finebench import ct_finebench_score
from rrg_rewards.functional.er2score import (
    MarginRewardEnforcementLoss,
    margin_reward_enforcement_loss,
    margin_reward_enforcement_terms,
)
from rrg_rewards.functional.label_counts import LabelCounts, label_averages, label_counts, label_f1, label_statistics
from rrg_rewards.functional.log_probs import kl_estimate, token_entropies, token_log_probs
from rrg_rewards.functional.policy_losses import PolicyLoss, TokenLoss, importance_weights, policy_loss, value_loss
from rrg_rewards.functional.significance_tests import (
    PairedBootstrap,
    PermutationTest,
    holm_correction,
    paired_bootstrap,
    paired_randomisation,
    weighted_mean,
)

__all__ = [
    "CRGWeights",
    "CrepeLoss",
    "CrimsonAttributeError",
    "CrimsonEvaluation",
    "CrimsonFinding",
    "CrimsonStatistics",
    "CrimsonTrainingStatistics",
    "LabelCounts",
    "MarginRewardEnforcementLoss",
    "PairedBootstrap",
    "PermutationTest",
    "PolicyLoss",
    "StatedDetails",
    "StatedPlace",
    "TokenLoss",
    "agreement_interval",
    "agreement_permutation_test",
    "bootstrap_interval",
    "crepe_loss",
    "crepe_score",
    "crg_best_constant",
    "crg_contributions",
    "crg_label_weights",
    "crg_macro_score_from_counts",
    "crg_multilevel_score",
    "crg_score",
    "crg_score_from_counts",
    "crg_weights",
    "crimson_score",
    "crimson_score_from_statistics",
    "crimson_statistics",
    "crimson_training_score",
    "crimson_training_score_from_statistics",
    "crimson_training_statistics",
    "ct_finebench_score",
    "decoupled_advantages",
    "generalized_advantages",
    "greedy_baseline_advantages",
    "group_advantages",
    "group_deviations",
    "holm_correction",
    "human_agreement",
    "importance_weights",
    "kendall_tau",
    "kl_estimate",
    "label_averages",
    "label_counts",
    "label_f1",
    "label_statistics",
    "label_table",
    "leave_one_out_advantages",
    "margin_reward_enforcement_loss",
    "margin_reward_enforcement_terms",
    "normal_reference_weight",
    "paired_bootstrap",
    "paired_randomisation",
    "perm_both_test",
    "policy_loss",
    "spearman_rho",
    "token_entropies",
    "token_log_probs",
    "value_loss",
    "weighted_mean",
]
