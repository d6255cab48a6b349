"""A seeded corpus of synthetic chest-CT studies with known labels and findings, and the population it is drawn from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rrg_rewards.data.phantom.wording import Template, Topic, Wording, load_wording
from rrg_rewards.data.phantom.writer import PhantomFinding, write_report
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.random_draws import Draws
from rrg_rewards.utilities.yaml_files import package_yaml

FINDINGS_HEADER, IMPRESSION_HEADER = "Findings:", "Impression:"
_WORD = re.compile(r"\w+|[^\w\s]+")


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

    Example:
        >>> population = load_population()
        >>> population.prevalence.shape
        (18,)
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        labels = list(config["labels"].values())
        self.factors: tuple[str, ...] = tuple(config["factors"])
        self.prevalence: NDArray[np.float64] = np.array([label["prevalence"] for label in labels])
        self._loadings: NDArray[np.float64] = np.array(
            [[label["loadings"].get(factor, 0.0) for factor in self.factors] for label in labels]
        )
        self._own = np.sqrt(1 - (self._loadings**2).sum(axis=1))
        self._threshold = np.array([NormalDist().inv_cdf(1 - prevalence) for prevalence in self.prevalence])
        self._age = config["age"]
        self._age_factor = self.factors.index(self._age["factor"])
        self._prior: float = config["prior"]
        self._indications = [(entry["text"], frozenset(entry.get("labels", ()))) for entry in config["indications"]]

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


@dataclass(frozen=True)
class PhantomStudy:
    """A synthetic chest-CT study.

    The findings section and the impression have the same ``labels``. A label is 1 if and only if ``findings`` contains
    it as ``present``. Labels are never hedged. Suspected causes (``consolidation, suspicious for infection``) and some
    findings outside the labels are ``uncertain``.

    Args:
        study_id: ``phantom-<style>-<seed>-<index>``.
        labels: 18 values, 0 or 1, in the order of ``rrg_rewards.schemas.CT_RATE``.
        findings: Findings in the order of the findings section, including denials and findings outside the labels.
        findings_text: The findings section.
        impression_text: The impression.
        context: Age, sex, indication and whether there is a prior scan.
        style: ``full`` or ``compact``.

    Example:
        >>> study = phantom_studies(1, seed=3, style="compact")[0]
        >>> study.study_id, sum(study.labels)
        ('phantom-compact-3-0', 5)
    """

    study_id: str
    labels: tuple[int, ...]
    findings: tuple[PhantomFinding, ...]
    findings_text: str
    impression_text: str
    context: PhantomContext
    style: str

    @property
    def report(self) -> str:
        """The findings section and the impression, with headers."""
        return f"{FINDINGS_HEADER} {self.findings_text}\n{IMPRESSION_HEADER} {self.impression_text}"

    def to_row(self) -> dict[str, Any]:
        """Return a plain dict for ``datasets.Dataset.from_list``, CSV or JSON lines.

        Returns:
            ``study_id``; the texts ``findings``, ``impression`` and ``report``; ``labels``, a list of 18 ints; ``age``
            in years, ``sex``, ``indication`` and ``prior``.

        Example:
            >>> list(phantom_studies(1)[0].to_row())
            ['study_id', 'findings', 'impression', 'report', 'labels', 'age', 'sex', 'indication', 'prior']
        """
        return {
            "study_id": self.study_id,
            "findings": self.findings_text,
            "impression": self.impression_text,
            "report": self.report,
            "labels": list(self.labels),
            **vars(self.context),
        }


def _study(seed: int, index: int, style: str, wording: Wording, normal: float) -> PhantomStudy:
    # Seed with the index, so that a study does not depend on the studies before it.
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(index,))))
    population = load_population()
    labels, age = population.sample(generator)
    # From other random numbers, so that the studies of patients with findings do not depend on the share.
    if normal and np.random.default_rng((seed, index)).random() < normal:
        labels = (0,) * len(labels)
    draws = Draws(generator)
    context = population.context(labels, age, draws)
    report = write_report(labels, context.prior, wording, draws)
    return PhantomStudy(
        study_id=f"phantom-{style}-{seed}-{index}",
        labels=labels,
        findings=report.findings,
        findings_text=report.findings_text,
        impression_text=report.impression_text,
        context=context,
        style=style,
    )


def phantom_studies(n: int, seed: int = 0, style: str = "full", normal: float = 0.0) -> list[PhantomStudy]:
    """Make the first ``n`` studies of a corpus.

    A study depends only on the seed, its index and the style. A longer corpus therefore begins with the shorter one.
    Labels and context depend only on the seed and the index: both styles describe the same patients.

    Args:
        n: Number of studies, not negative.
        seed: Seed of the corpus, not negative.
        style: ``full`` or ``compact``. Full reports resemble clinical reports, with distractors, hedges, changes since
            a prior scan and varied wording. Compact reports have short sentences with the closed vocabulary of
            :func:`phantom_vocabulary`, for tiny language models.
        normal: Probability that a patient has none of the labels, in addition to those who have none by chance (5 %).

    Raises:
        ValueError: If ``n`` or ``seed`` is negative, the style is unknown (the message names the nearest known one), or
            ``normal`` is outside [0, 1].

    Example:
        >>> study = phantom_studies(2, seed=0, style="compact")[1]
        >>> study == phantom_studies(1000, seed=0, style="compact")[1]
        True
    """
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    if not 0 <= normal <= 1:
        raise ValueError(f"normal must be in [0, 1], got {normal}")
    wording = load_wording(style)
    return [_study(seed, index, style, wording, normal) for index in range(n)]


def phantom_rows(n: int, seed: int = 0, style: str = "full") -> list[dict[str, Any]]:
    """Return the studies of :func:`phantom_studies` as plain dicts; see :meth:`PhantomStudy.to_row`.

    Args:
        n: Number of studies, not negative.
        seed: Seed of the corpus, not negative.
        style: ``full`` or ``compact``.

    Raises:
        ValueError: As :func:`phantom_studies`.

    Example:
        >>> len(phantom_rows(3)), len(phantom_rows(3)[0]["labels"])
        (3, 18)
    """
    return [study.to_row() for study in phantom_studies(n, seed=seed, style=style)]


def _slot_values(topic: Topic, wording: Wording) -> dict[str, list[str]]:
    sites = topic.where
    return {
        "location": [text for site in sites for text in wording.location_texts(*site)],
        "side": [side for side, _ in sites],
        "size": [str(size) for size in topic.sizes],
        "severity": list(topic.severities),
        "kind": list(topic.kinds),
        "change": ["", *(text for texts in wording.changes.values() for text in texts)],
        "interpretation": ["", *(text for texts in topic.interpretations.values() for text in texts)],
    }


def _sentences(wording: Wording) -> list[str]:
    """Return sentences that together contain all words of a style."""
    plain: list[Template] = [*wording.comparisons, *wording.normal_impressions]
    statements = [*wording.closings, *(s for region in wording.regions for s in (*region.normals, *region.negatives))]
    plain.extend(statement.template for statement in statements)
    sentences = [lead for region in wording.regions for lead in region.leads]
    sentences.extend(text for template in plain for text in template.variants({}))
    for topic in (*wording.topics, *wording.distractors):
        values = _slot_values(topic, wording)
        sentences.extend(text for t in (*topic.findings, *topic.impression) for text in t.variants(values))
    return sentences


@cache
def phantom_vocabulary(style: str = "compact") -> tuple[str, ...]:
    r"""Return all tokens of the reports of a style, sorted: words and runs of punctuation, ``\w+|[^\w\s]+``.

    ``tokenizers.pre_tokenizers.Whitespace`` splits text into the same tokens. A word-level tokenizer with this
    vocabulary covers all reports of all seeds, including their headers.

    Args:
        style: ``full`` or ``compact``.

    Raises:
        ValueError: If the style is unknown. The message names the nearest known one.

    Example:
        >>> {"consolidation", "Consolidation", ".", "Impression"} <= set(phantom_vocabulary("compact"))
        True
    """
    wording = load_wording(style)
    texts = [FINDINGS_HEADER, IMPRESSION_HEADER, ".", *_sentences(wording)]
    if wording.rates["merge"]:
        # A phrase that is merged into the sentence before it starts with a lowercase letter.
        texts.extend([";", *(f"{text[:1].lower()}{text[1:]}" for text in _sentences(wording))])
    return tuple(sorted({token for text in texts for token in _WORD.findall(text)}))
