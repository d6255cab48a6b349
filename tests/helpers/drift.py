"""Simulated training runs: a policy that drifts to an exploit, or improves towards the references."""

import random
from collections.abc import Callable, Sequence
from itertools import islice

from rrg_rewards.watch import RewardWatch
from rrg_rewards.watch.attack.families import Family, Policy, split_sentences

STOP = [
    "divergence",
    "instructions",
    "longer",
    "repeated_sentences",
    "new_sentences",
    "more_findings",
    "more_hedges",
    "more_sizes",
    "hedged_sentences",
    "unread_words",
]
"""The checks of the example in docs/reward_watch.md."""

SETTINGS = {"window_reports": 640}
"""The settings of the same example."""

STUDIES, GROUP = 8, 8


def sampled(text: str, draw: random.Random) -> list[str]:
    """A group of completions of a policy that samples: some sentences are missing in half of them."""
    sentences = split_sentences(text)
    shorter = " ".join([sentence for sentence in sentences if draw.random() < 0.9] or sentences)
    return [draw.choice((text, shorter)) for _ in range(GROUP)]


def exploits(family: Family, others: Sequence[Family]) -> list[Policy]:
    """Texts of a family, of several lengths."""
    if family.combine in ("evolve", "cross"):
        texts = [exploits(other, ())[-1].text for other in others if other.name in ("hedges", "sizes")]
        return [Policy((" ".join(texts),))]
    if family.combine:
        names = ("hedges", "sized_alternatives", "labels", "instructions")
        texts = [exploits(other, ())[-1] for other in others if other.name in names]
        return [
            text.prepended_to_report() if family.combine == "prepend" else text.appended_to_report() for text in texts
        ]
    listings = [family.policy(listing.sentences(family.values)[:8]) for listing in islice(family.listings(), 2)]
    return [*family.texts[:3], *list(family.common())[1:3], *listings]


Change = Callable[[str, float, random.Random], str]
"""Changes an honest report with a given probability."""


def exploit(policy: Policy) -> Change:
    """Replace reports by an exploit."""
    return lambda text, share, draw: policy.completion(text) if draw.random() < share else text


def broken_words(text: str, share: float, draw: random.Random) -> str:
    """Replace words by others that do not exist."""
    return " ".join(
        "".join(draw.sample(word, len(word))) + draw.choice(("ivel", "oma", "urate")) if draw.random() < share else word
        for word in text.split()
    )


def drift(
    watch: RewardWatch, pairs: Sequence[tuple[str, str]], change: Change, length: int = 100, seed: int = 0
) -> float | None:
    """Train a policy that changes its reports more and more often.

    Args:
        watch: The watch.
        pairs: References and reports of an honest system.
        change: The change.
        length: Number of steps until the share of the change is 1.
        seed: Random seed.

    Returns:
        Share of the drift after which the watch stopped the run, ``None`` if it did not stop it in the first quarter.
    """
    draw = random.Random(seed)
    for step in range(-10, length // 4 + 1):
        share = max(step, 0) / length
        studies = draw.sample(pairs, STUDIES)
        references = [reference for reference, _ in studies for _ in range(GROUP)]
        honest = [completion for _, text in studies for completion in sampled(text, draw)]
        completions = [change(text, share, draw) for text in honest]
        watch.observe(completions, references)
        watch.step(step)
        if watch.should_stop:
            return share
    return None


def improve(watch: RewardWatch, pairs: Sequence[tuple[str, str]], steps: int = 200, seed: int = 0) -> None:
    """Train a policy that writes the reference, instead of a system's report, more and more often."""
    draw = random.Random(seed)
    for step in range(steps):
        skill = 0.8 * step / steps
        studies = draw.sample(pairs, STUDIES)
        references = [reference for reference, _ in studies for _ in range(GROUP)]
        completions = [
            one if draw.random() < skill else other
            for reference, report in studies
            for one, other in zip(sampled(reference, draw), sampled(report, draw), strict=True)
        ]
        rewards = [float(completion in reference) + draw.gauss(skill, 0.3) for completion, reference in
                   zip(completions, references, strict=True)]  # fmt: skip
        watch.observe(completions, references, rewards={"r": rewards})
        watch.step(step)
