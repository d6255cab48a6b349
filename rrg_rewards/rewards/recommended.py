"""The recommended reward for training, by rules: no text that is the same for all patients earns more than silence."""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.rewards.base import named_columns
from rrg_rewards.rewards.compose import ComposedReward


class RecommendedReward(ComposedReward):
    r"""The reward that ``docs/rewards.md`` recommends for training, deterministic and without a model.

    .. math::
        \rho(c, y_i) = w_i S(c, y_i) - \max\Bigl(0, \frac{1}{M} \sum_{j=1}^{M} w_j S(c, y_j)\Bigr) + 0.1 \, r(c)

    :math:`S` is CRIMSON's training form by rules (:func:`rrg_rewards.functional.crimson_training_statistics`), the
    second term what the same text earns by chance, over at most 256 training references, and :math:`r` the penalty of
    repetition, in [-1, 0]. The weight :math:`w` of normal references is
    :func:`rrg_rewards.functional.normal_reference_weight`, and 1 of others. Higher is better. A report without abnormal
    findings and repetition earns 0 for every reference, and a text that is the same for all training references at most
    0 in the mean. The range is -2.1 to 1.

    :meth:`fit` keeps the training references. The same reward as a composed one:

    .. code-block:: yaml

        rewards:
          - name: composed
            as: recommended
            parts:
              - {name: crimson, form: training, chance: dataset}
              - {name: repetition, weight: 0.1}

    Args:
        reference_column: Column of reference reports.
        context_columns: Columns of the patient's context, ``age``, ``sex`` and ``indication``, as in
            :class:`MetricReward`.
        chance: ``"dataset"``, or the text that :meth:`fitted_options` returned.
        report: As in :class:`ComposedReward`.
        name: Name under which trainers log the reward.

    Raises:
        ValueError: If ``chance`` is neither; when called, if the reward is not fitted or a column is missing.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> train = ["Nodule of 8 mm in the left upper lobe."] * 2 + ["Large pleural effusion."] + ["Normal."] * 3
        >>> reward = make_reward("recommended", reference_column="report").fit(report=train)
        >>> nodule, effusion = train[1:3]
        >>> [round(value, 3) for value in reward([nodule, effusion, "Normal.", ""], report=train[1:5])]
        [0.708, 0.875, 0.0, 0.0]
        >>> [round(sum(reward([text] * 6, report=train)) / 6, 3) for text in (nodule, effusion, "")]
        [0.0, 0.0, 0.0]
    """

    def __init__(
        self,
        *,
        reference_column: str = "reference",
        context_columns: Mapping[str, str] | Sequence[str] = (),
        chance: str = "dataset",
        report: str | None = None,
        name: str = "recommended",
    ) -> None:
        crimson: dict[str, Any] = {
            "form": "training",
            "chance": chance,
            "context_columns": named_columns(context_columns),
        }
        parts: list[dict[str, Any]] = [{"name": "crimson", **crimson}, {"name": "repetition", "weight": 0.1}]
        super().__init__(parts, reference_column=reference_column, report=report, name=name)

    def fitted_options(self) -> dict[str, Any]:
        """Return the training references as ``chance``: compressed, with the text of the reports."""
        return self.parts[0].reward.fitted_options()
