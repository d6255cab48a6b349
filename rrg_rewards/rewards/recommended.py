"""The recommended reward for training, by rules, and its former versions."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from rrg_rewards.rewards.base import named_columns
from rrg_rewards.rewards.compose import ComposedReward
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.settings import SettingError

RecommendedVersion = Literal["0.2", "0.1"]

_LABELER = "rules:ct_rate"
_CRIMSON = {"name": "crimson", "form": "training", "chance": "dataset"}
_PARTS: Mapping[RecommendedVersion, Sequence[Mapping[str, Any]]] = {
    "0.2": (
        {**_CRIMSON, "chance_share": 0.5, "false_price": 2.0},
        {"name": "ct_finebench", "chance": "dataset"},
        {"name": "crg", "average": "macro", "weight": 0.1},
    ),
    "0.1": (_CRIMSON, {"name": "repetition", "weight": 0.1}),
}


class RecommendedReward(ComposedReward):
    r"""The reward that ``docs/rewards.md`` recommends for training, deterministic and without a model.

    .. math::
        \rho(c, y_i) = w_i S(c, y_i) - \tfrac{1}{2} \max\bigl(0, \bar S(c)\bigr) + Q(c, y_i) + 0.1 \, R(c, y_i)

    :math:`S` is CRIMSON's training form by rules in which a false finding costs twice as much as a missing one
    (:func:`rrg_rewards.functional.crimson_training_statistics`), :math:`\bar S` what the same text earns by chance,
    :math:`Q` CT-FineBench above chance (:class:`rrg_rewards.metrics.CTFineBench`) and :math:`R` macro CRG
    (:class:`CRGReward`). The weight :math:`w` of normal references is
    :func:`rrg_rewards.functional.normal_reference_weight`, and 1 of others. Higher is better.

    What it teaches: to state more of the true findings (:math:`S`, :math:`R`), their places, sizes and degrees
    (:math:`Q`, :math:`S`), also of findings without clinical weight (:math:`Q`, :math:`R`), and not to invent
    (:math:`S`). What it does not: wording, order, sections, certainty beyond that of the reference, and findings that
    the rules do not read.

    A text that is the same for all patients has at most half of its chance :math:`\bar S` more than a blank one over
    the training references. Version ``"0.1"``, :math:`S` above all of its chance with 0.1 of
    :class:`RepetitionPenalty`, pays it nothing, and teaches less (``benchmarks/teaching.py``).

    :meth:`fit` keeps the training references. Version ``"0.2"`` is the same reward as

    .. code-block:: yaml

        rewards:
          - name: composed
            as: recommended
            parts:
              - {name: crimson, form: training, chance: dataset, chance_share: 0.5, false_price: 2}
              - {name: ct_finebench, chance: dataset}
              - {name: crg, average: macro, weight: 0.1}

    Args:
        reference_column: Column of reference reports.
        context_columns: Columns of the patient's context, ``age``, ``sex`` and ``indication``, as in
            :class:`MetricReward`, which CRIMSON reads.
        version: ``"0.2"``, or ``"0.1"``, the former one.
        labeler: Labeler of CRG, such as ``"rules:chexbert"`` for chest X-rays; ``"0.1"`` has none.
        fitted: What :meth:`fitted_options` returned: for each part the options that were fitted.
        report: As in :class:`ComposedReward`.
        name: Name under which trainers log the reward.

    Raises:
        SettingError: If the version is unknown, or ``fitted`` or ``labeler`` do not belong to it.
        ValueError: When called, if the reward is not fitted or a column is missing; when fitted, if no label of CRG has
            both a positive and a negative reference, or no reference has a question of CT-FineBench.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> train = ["Nodule of 8 mm in the left upper lobe."] * 2 + ["Large pleural effusion."] + ["Normal."] * 3
        >>> reward = make_reward("recommended", reference_column="report").fit(report=train)
        >>> nodule, effusion = train[1:3]
        >>> true, blank = reward([nodule, effusion, "Normal."], report=train[1:4]), reward([""] * 3, report=train[1:4])
        >>> all(one > other for one, other in zip(true[:2], blank)), true[2] == blank[2] == 0
        (True, True)
    """

    def __init__(
        self,
        *,
        reference_column: str = "reference",
        context_columns: Mapping[str, str] | Sequence[str] = (),
        version: RecommendedVersion = "0.2",
        labeler: str = _LABELER,
        fitted: Mapping[str, Mapping[str, Any]] | None = None,
        report: str | None = None,
        name: str = "recommended",
    ) -> None:
        # YAML and the command line read a number.
        chosen: Any = str(version)
        if chosen not in _PARTS:
            raise SettingError("version", unknown_name_message("version", chosen, get_args(RecommendedVersion)))
        names = [part["name"] for part in _PARTS[chosen]]
        if labeler != _LABELER and "crg" not in names:
            raise SettingError("labeler", f"version {chosen} has no CRG, and takes no labeler")
        if not isinstance(fitted, Mapping | None) or not {*(fitted or {})} <= {*names}:
            raise SettingError("fitted", f"must be what fitted_options() of version {chosen} returned")
        self._given = fitted or {}
        own: dict[str, dict[str, Any]] = {
            "crimson": {"context_columns": named_columns(context_columns)},
            "crg": {"labeler": labeler},
        }
        parts = [{**part, **own.get(part["name"], {}), **self._given.get(part["name"], {})} for part in _PARTS[chosen]]
        super().__init__(parts, reference_column=reference_column, report=report, name=name)

    def fitted_options(self) -> dict[str, Any]:
        """Return what the parts were fitted to as ``fitted``: the training references, compressed, with their text."""
        fitted = {part.name: {**self._given.get(part.name, {}), **part.reward.fitted_options()} for part in self.parts}
        return {"fitted": {name: own for name, own in fitted.items() if own}}
