"""The phantom population: labels with configured prevalences and co-occurrences, age, sex and indication."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.package_data import package_yaml
from rrg_rewards.utilities.random_draws import Draws

__all__ = ["PhantomContext", "Population", "load_population"]


@dataclass(frozen=True)
class PhantomContext:
    """Context of a phantom study: information that is available before the scan is read.

    Args:
        age: Age in years.
        sex: ``female`` or ``male``.
        indication: Indication for the scan. It never names a label.
        prior: Whether there is a prior scan to compare with.

    Example:
        >>> PhantomContext(age=61, sex="female", indication="cough", prior=False).age
        61
    """

    age: int
    sex: str
    indication: str
    prior: bool


class Population:
    r"""A Gaussian copula over labels, with exact prevalences. Latent conditions make labels co-occur.

    Label :math:`l` with prevalence :math:`p_l` and loadings :math:`\lambda_l` on independent standard normal
    conditions :math:`f` is positive if

    .. math::
        \lambda_l^\top f + \sqrt{1 - \lVert \lambda_l \rVert^2} \; \varepsilon_l > \Phi^{-1}(1 - p_l),
        \qquad \varepsilon_l \sim N(0, 1)

    The left side is standard normal, hence :math:`P(l) = p_l`. The left sides of two labels have the correlation
    :math:`\lambda_l^\top \lambda_m`. These correlations form a valid matrix for any loadings.

    Args:
        config: ``factors``, ``labels`` (``prevalence`` in (0, 1) and ``loadings`` by factor for each CT-RATE label),
            ``age``, ``prior`` and ``indications``, as in ``population.yaml``.

    Raises:
        ValueError: If the labels are not those of CT-RATE, or the squared loadings of a label sum to 1 or more.

    Example:
        >>> population = load_population()
        >>> population.prevalence.shape, population.correlation.shape
        ((18,), (18, 18))
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        if tuple(config["labels"]) != CT_RATE.labels:
            raise ValueError(f"the population must give CT-RATE's labels in order, got {list(config['labels'])}")
        labels = list(config["labels"].values())
        self.factors: tuple[str, ...] = tuple(config["factors"])
        self.prevalence: NDArray[np.float64] = np.array([label["prevalence"] for label in labels])
        self._loadings: NDArray[np.float64] = np.array(
            [[label["loadings"].get(factor, 0.0) for factor in self.factors] for label in labels]
        )
        own_variance = 1 - (self._loadings**2).sum(axis=1)
        if not (own_variance > 0).all():
            wrong = CT_RATE.labels[int(own_variance.argmin())]
            raise ValueError(f"the squared loadings of {wrong!r} must sum to less than 1")
        self._own = np.sqrt(own_variance)
        self._threshold = np.array([NormalDist().inv_cdf(1 - prevalence) for prevalence in self.prevalence])
        self._age = config["age"]
        self._age_factor = self.factors.index(self._age["factor"])
        self._prior: float = config["prior"]
        self._indications = [(entry["text"], frozenset(entry.get("labels", ()))) for entry in config["indications"]]

    @property
    def correlation(self) -> NDArray[np.float64]:
        """Correlations ``(18, 18)`` of the latent normal variables. They determine the co-occurrence of labels."""
        correlation: NDArray[np.float64] = self._loadings @ self._loadings.T
        np.fill_diagonal(correlation, 1.0)
        return correlation

    def sample(self, generator: np.random.Generator) -> tuple[tuple[int, ...], int]:
        """Draw the labels of one patient, 0 or 1 in the order of CT-RATE, and the age in years."""
        normals = generator.standard_normal(len(self.factors) + CT_RATE.num_labels + 1)
        factors, own = normals[: len(self.factors)], normals[len(self.factors) : -1]
        positive = self._loadings @ factors + self._own * own > self._threshold
        age = self._age
        loading = age["loading"]
        deviations = loading * factors[self._age_factor] + (1 - loading**2) ** 0.5 * normals[-1]
        years = round(float(age["mean"] + age["deviation"] * deviations))
        return tuple(positive.astype(int).tolist()), min(max(years, age["lowest"]), age["highest"])

    def context(self, labels: tuple[int, ...], age: int, draws: Draws) -> PhantomContext:
        """Draw the context of a patient with these labels."""
        positive = {name for name, label in zip(CT_RATE.labels, labels, strict=True) if label}
        fitting = [text for text, only in self._indications if not only or not positive.isdisjoint(only)]
        sex = draws.pick(("female", "male"))
        return PhantomContext(age=age, sex=sex, indication=draws.pick(fitting), prior=draws.chance(self._prior))


@lru_cache(maxsize=1)
def load_population() -> Population:
    """Return the population in ``population.yaml``, loaded once per process.

    Example:
        >>> float(load_population().prevalence[9])
        0.45
    """
    return Population(package_yaml("rrg_rewards.data.phantom", "population"))
