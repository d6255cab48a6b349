"""Who the phantom patients are: labels with given prevalences and co-occurrences, age, sex, reason for the scan."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from statistics import NormalDist
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.draws import Draws

__all__ = ["PhantomContext", "Population", "load_population", "read_package_yaml"]


def read_package_yaml(name: str) -> dict[str, Any]:
    """Read a YAML mapping that is shipped beside this module.

    Example:
        >>> read_package_yaml("phantom_population.yaml")["factors"]
        ['vascular', 'congestion', 'infection', 'airway']
    """
    content: dict[str, Any] = yaml.safe_load(files("rrg_rewards.data").joinpath(name).read_text(encoding="utf-8"))
    return content


@dataclass(frozen=True)
class PhantomContext:
    """What is known of a phantom patient before the scan is read.

    Args:
        age: Years.
        sex: ``female`` or ``male``.
        indication: Why the scan was asked for; never names a label.
        prior: Whether an earlier scan was there to compare with.

    Example:
        >>> PhantomContext(age=61, sex="female", indication="cough", prior=False).age
        61
    """

    age: int
    sex: str
    indication: str
    prior: bool


class Population:
    r"""A Gaussian copula over labels: exact prevalences, co-occurrence through hidden conditions.

    Label :math:`l` with prevalence :math:`p_l` and loadings :math:`\lambda_l` on independent standard normal
    conditions :math:`f` is positive where

    .. math::
        \lambda_l^\top f + \sqrt{1 - \lVert \lambda_l \rVert^2} \; \varepsilon_l > \Phi^{-1}(1 - p_l),
        \qquad \varepsilon_l \sim N(0, 1)

    The left side is standard normal, hence :math:`P(l) = p_l`; two labels' left sides correlate by
    :math:`\lambda_l^\top \lambda_m`, which is a valid correlation matrix whatever the loadings.

    Args:
        config: ``factors``, ``labels`` (``prevalence`` in (0, 1) and ``loadings`` by factor for each CT-RATE label),
            ``age``, ``prior`` and ``indications``, as in ``phantom_population.yaml``.

    Raises:
        ValueError: If the labels are not CT-RATE's, or a label's squared loadings sum to 1 or more.

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
        """Correlations ``(18, 18)`` of the latent normals; labels co-occur as these have it."""
        correlation: NDArray[np.float64] = self._loadings @ self._loadings.T
        np.fill_diagonal(correlation, 1.0)
        return correlation

    def sample(self, generator: np.random.Generator) -> tuple[tuple[int, ...], int]:
        """Draw one patient's labels, 0 or 1 in CT-RATE's order, and age in years."""
        normals = generator.standard_normal(len(self.factors) + CT_RATE.num_labels + 1)
        factors, own = normals[: len(self.factors)], normals[len(self.factors) : -1]
        positive = self._loadings @ factors + self._own * own > self._threshold
        age = self._age
        loading = age["loading"]
        deviations = loading * factors[self._age_factor] + (1 - loading**2) ** 0.5 * normals[-1]
        years = round(float(age["mean"] + age["deviation"] * deviations))
        return tuple(positive.astype(int).tolist()), min(max(years, age["lowest"]), age["highest"])

    def context(self, labels: tuple[int, ...], age: int, draws: Draws) -> PhantomContext:
        """Draw what is known of a patient with these labels before the scan is read."""
        positive = {name for name, label in zip(CT_RATE.labels, labels, strict=True) if label}
        fitting = [text for text, only in self._indications if not only or not positive.isdisjoint(only)]
        sex = draws.pick(("female", "male"))
        return PhantomContext(age=age, sex=sex, indication=draws.pick(fitting), prior=draws.chance(self._prior))


@lru_cache(maxsize=1)
def load_population() -> Population:
    """The population of ``phantom_population.yaml``, read once.

    Example:
        >>> float(load_population().prevalence[9])
        0.45
    """
    return Population(read_package_yaml("phantom_population.yaml"))
