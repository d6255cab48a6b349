"""Load the word lists of ``cues.yaml``."""

from functools import cache

from rrg_rewards.utilities.yaml_files import package_yaml


@cache
def cue_words(section: str, *lists: str) -> frozenset[str]:
    """Return the words of one or more lists in a section of ``cues.yaml``.

    Example:
        >>> sorted(cue_words("denials", "always", "in_series"))
        ['no', 'non', 'nor', 'not', 'without']
    """
    words = package_yaml("rrg_rewards.findings.lexicon", "cues")[section]
    return frozenset(word for name in lists for word in words[name])
