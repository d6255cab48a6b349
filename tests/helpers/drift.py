"""Simulated training runs: a policy that drifts to an exploit, or improves towards the references."""

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from rrg_rewards.attack.families import Family, Policy, split_sentences
from rrg_rewards.data import phantom_studies
from rrg_rewards.watch import RewardWatch

STOP = [
    *("divergence", "longer", "same_report", "repeated_sentences", "repeating_reports"),
    *("sentence_frames", "unread_words"),
]
"""The checks of the example in docs/reward_design.md."""

SETTINGS = {"window_reports": 640}
"""The settings of the same example."""

STUDIES, GROUP = 8, 8
QUARTER = 0.25


def phantom_pairs() -> list[tuple[str, str]]:
    """References, and reports of a system that writes the report of the patient, or half of it with another one's."""
    reports = [study.report for study in phantom_studies(160, seed=0, style="compact")]
    halves = [" ".join(split_sentences(text)[: len(split_sentences(text)) // 2]) for text in reports]
    return [(text, f"{halves[row]} {halves[row - 1]}" if row % 2 else text) for row, text in enumerate(reports)]


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
        return [text.added_to_report(before=family.combine == "prepend") for text in texts]
    listings = [family.policy(listing.sentences(family.values)[:8]) for listing in islice(family.listings(), 2)]
    return [*family.texts[:3], *list(family.common())[1:3], *listings]


Change = Callable[[str, float, random.Random], str]
"""Changes an honest report with a given probability."""


def exploit(policy: Policy) -> Change:
    """Replace reports by an exploit."""
    return lambda text, share, draw: policy.completion(text) if draw.random() < share else text


Edit = Callable[[str, random.Random], str]
"""Changes an honest report."""

_FINDINGS = (
    *("nodules", "masses", "opacities", "cysts"),
    *("lesions", "granulomas", "consolidations", "calcifications"),
)
_PLACES = ("right lung", "left lung", "left lower lobe", "right upper lobe", "liver", "mediastinum", "lung bases")
_FRAMES = (
    "There are {finding} in the {place}.",
    "The {place} shows {finding}.",
    "{finding} of {size} mm are seen in the {place}.",
    "In the {place}, {finding} can be identified.",
    "{finding} which extend to the {place} were detected.",
    "The appearance of the {place} suggests {finding}.",
    "The {place} contains {finding} measuring {size} mm.",
    "Images show that {finding} occupy the {place}.",
)


def _filled(frame: str, draw: random.Random) -> str:
    text = frame.format(finding=draw.choice(_FINDINGS), place=draw.choice(_PLACES), size=draw.randint(3, 60))
    return text[:1].upper() + text[1:]


def _collapsed(frames: int) -> Edit:
    return lambda _, draw: " ".join(_filled(draw.choice(_FRAMES[:frames]), draw) for _ in range(5))


def _one_doubled(text: str, draw: random.Random) -> str:
    sentences = split_sentences(text)
    number = draw.randrange(len(sentences))
    return " ".join([*sentences[: number + 1], *sentences[number:]])


EDITS: Mapping[str, Edit] = {
    "the report is doubled": lambda text, _: f"{text} {text}",
    "each sentence is doubled": lambda text, _: " ".join(f"{part} {part}" for part in split_sentences(text)),
    "one sentence is doubled": _one_doubled,
    "reports of one frame": _collapsed(1),
    "reports of 4 frames": _collapsed(4),
    "reports of 8 frames": _collapsed(8),
    "a sentence of one frame is added": lambda text, draw: f"{text} {_filled(_FRAMES[3], draw)}",
}
"""Edits of reports, by what they do, of which each run draws anew how it fills its slots."""


def edited(edit: Edit) -> Change:
    """Edit reports with the given probability."""
    return lambda text, share, draw: edit(text, draw) if draw.random() < share else text


def broken_words(text: str, share: float, draw: random.Random) -> str:
    """Replace words by others that do not exist."""
    return " ".join(
        "".join(draw.sample(word, len(word))) + draw.choice(("ivel", "oma", "urate")) if draw.random() < share else word
        for word in text.split()
    )


def drift(
    watch: RewardWatch,
    pairs: Sequence[tuple[str, str]],
    change: Change,
    length: int = 100,
    seed: int = 0,
    end: float = QUARTER,
) -> float | None:
    """Train a policy that changes its reports more and more often.

    Args:
        watch: The watch.
        pairs: References and reports of an honest system.
        change: The change.
        length: Number of steps until the share of the change is 1.
        seed: Random seed.
        end: Share of the drift at which the run ends.

    Returns:
        Share of the drift after which the watch stopped the run, ``None`` if it did not stop it.
    """
    draw = random.Random(seed)
    for step in range(-10, round(end * length) + 1):
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


def improve(
    watch: RewardWatch, pairs: Sequence[tuple[str, str]], steps: int = 200, seed: int = 0, skill: float = 0.8
) -> None:
    """Train a policy that writes the reference, instead of a system's report, more and more often.

    Args:
        watch: The watch.
        pairs: References and reports of an honest system.
        steps: Number of steps.
        seed: Random seed.
        skill: Share of references at the end; 0 for a policy that does not change.
    """
    draw = random.Random(seed)
    for step in range(steps):
        skilled = skill * step / steps
        studies = draw.sample(pairs, STUDIES)
        references = [reference for reference, _ in studies for _ in range(GROUP)]
        completions = [
            one if draw.random() < skilled else other
            for reference, report in studies
            for one, other in zip(sampled(reference, draw), sampled(report, draw), strict=True)
        ]
        rewards = [float(completion in reference) + draw.gauss(skilled, 0.3) for completion, reference in
                   zip(completions, references, strict=True)]  # fmt: skip
        watch.observe(completions, references, rewards={"r": rewards})
        watch.step(step)
