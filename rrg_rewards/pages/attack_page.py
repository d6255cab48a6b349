"""The page of ``rrg-rewards attack``, and its plot."""

import math

from rrg_rewards.attack.results import AttackResult
from rrg_rewards.pages.page import Column, Page, Pane, Rows
from rrg_rewards.utilities.charts import Interval, Intervals
from rrg_rewards.utilities.markup import Markup, element, shown_number, table


def attack_page(result: AttackResult, with_text: bool = False) -> Page:
    """Return the page of an attack on a reward.

    Args:
        result: The result.
        with_text: Whether texts that contain sentences of the user's reports are shown.

    Example:
        >>> from rrg_rewards.attack import attack_reward
        >>> def words(completions, reference, **_):
        ...     return [float(len(text.split())) for text in completions]
        >>> references = {"reference": [f"Nodule of {size} mm." for size in range(20)]}
        >>> page = attack_page(attack_reward(words, references, families=["normal"], budget=400))
        >>> page.rows.names
        ['normal']
    """
    families = result.families
    hidden = [family.quotes_reports and not with_text for family in families]
    columns = [
        Column("reward", [family.reward for family in families], "result"),
        Column("gain", [family.gain for family in families], "result"),
        Column("low", [family.interval[0] for family in families], "result"),
        Column("high", [family.interval[1] for family in families], "result"),
        Column("outcome", [family.outcome for family in families], "result"),
        Column("reward in the search", [family.searched_reward for family in families], "search", in_table=False),
        Column("unscorable", [family.unscorable for family in families], "search", in_table=False),
        Column("calls", [family.calls for family in families], "search", in_table=False),
        Column("edits honest reports", [str(family.edits).lower() for family in families], "search", in_table=False),
        Column("about", [family.about for family in families], "search"),
    ]
    texts = [None if hide else family.text for hide, family in zip(hidden, families, strict=True)]
    rows = Rows("text", [family.family.replace("_", " ") for family in families], columns, [Pane("Text", texts)])
    facts = {"Reward": result.signature or result.reward}
    facts |= {name.replace("_", " "): str(value) or "-" for name, value in result.settings.items()}
    failures = () if result.check is None else result.check.failures
    lead = " ".join(f"{text[:1].upper()}{text[1:]}." for text in (*failures, result.verdict))
    return Page(f"Attack on {result.reward}", lead, attack_sections(result), rows, facts)


def attack_sections(result: AttackResult) -> dict[str, list[Markup]]:
    """Return the sections of an attack: rewards of the baselines, and the gain of each family."""
    baselines = {"blank report": result.blank, "honest reports": result.honest, "references": result.reference}
    given = [[name, shown_number(value)] for name, value in baselines.items() if value is not None]
    return {
        "Baselines": [table(["Reports", "Mean reward"], given, "Mean reward on references that were not searched")],
        "Gains": _gains(result),
    }


def _gains(result: AttackResult) -> list[Markup]:
    title = (
        f"Gain of the best text of each family over {result.baseline}, with 95 % intervals. "
        "Dashed: threshold; dotted: the references themselves"
    )
    rows = [
        Interval(family.family.replace("_", " "), family.gain, *family.interval, family.outcome)
        for family in result.families
        if math.isfinite(family.gain) and all(map(math.isfinite, family.interval))
    ]
    base = result.honest if result.baseline == "honest" and result.honest is not None else result.blank
    marks = {"zero": 0.0, "threshold": float(result.settings["threshold"]), "reference": result.reference - base}
    shown = {name: value for name, value in marks.items() if math.isfinite(value)}
    return [Intervals(title, rows, shown).svg() if rows else element("p", "No family has a gain.")]
