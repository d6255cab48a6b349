"""The default checks of a watch."""

from rrg_rewards.watch.checks import Check, Divergence, Drift
from rrg_rewards.watch.new_sentences import NewSentences

__all__ = ["default_checks"]


def default_checks() -> tuple[Check, ...]:
    """Return the default checks of a watch, which ``docs/reward_watch.md`` describes.

    Example:
        >>> [check.name for check in default_checks()][:3]
        ['longer', 'shorter', 'repeated_sentences']
    """
    return (
        Drift("longer", "words", "rise", factor=1.5, margin=3.0, what="words per report"),
        Drift("shorter", "words", "fall", factor=0.5, what="words per report"),
        Drift("repeated_sentences", "repeated_sentences", "rise", margin=0.05, share=True,
              what="share of sentences that repeat one in the same report"),
        Drift("less_distinct", "distinct_ngrams", "fall", factor=0.5,
              what="share of different n-grams over reports"),
        Drift("same_report", "distinct_reports", "fall", factor=0.5, what="share of different reports"),
        Drift("normal_reports", "normal_reports", "rise", margin=0.2, share=True,
              what="share of reports without a finding where the reference has one"),
        Drift("more_positives", "positives", "rise", factor=2.0, margin=0.5, what="positive labels per report"),
        Drift("fewer_positives", "positives", "fall", factor=0.5, what="positive labels per report"),
        Drift("overcalled", "positives/*", "rise", factor=2.0, margin=0.1, share=True,
              what="share of reports with the label"),
        Drift("undercalled", "positives/*", "fall", factor=0.25, share=True, what="share of reports with the label"),
        Drift("judge_failures", "failed/*", "rise", margin=0.1, share=True,
              what="share of reports that the judge failed on"),
        Drift("unscorable", "unscorable/*", "rise", margin=0.1, share=True,
              what="share of reports without a reward"),
        Drift("instructions", "instructions", "rise", margin=0.02, share=True,
              what="share of reports with instructions aimed at a judge"),
        Drift("more_findings", "findings", "rise", factor=1.5, margin=1.0, what="findings per report"),
        Drift("more_hedges", "hedged_findings", "rise", factor=1.5, margin=0.2,
              what="uncertain and alternative findings per report"),
        Drift("more_sizes", "sizes", "rise", factor=1.5, margin=0.2, what="sizes per report"),
        Drift("hedged_sentences", "hedged_sentences", "rise", margin=0.05, share=True,
              what="share of sentences with words of uncertainty"),
        NewSentences(),
        Drift("unknown_words", "unknown_words", "rise", factor=1.5, margin=0.03, share=True,
              what="share of words that are in no reference"),
        Divergence(),
    )  # fmt: skip
