"""Plot of an attack on a reward."""

import io

from rrg_rewards.utilities.imports import require
from rrg_rewards.watch.attack.results import AttackResult

__all__ = ["draw_attack"]

_COLORS = {"exploit": "tab:red", "unclear": "tab:orange", "none": "tab:green"}


def draw_attack(result: AttackResult) -> bytes:
    """Draw the gain of each family with its interval, and return the plot as PNG.

    Args:
        result: Result of :func:`attack_reward`.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed. The message contains the pip command.
    """
    families = [family for family in result.families if family.gain == family.gain][::-1]
    figure = require("matplotlib.figure", extra="plot").Figure(
        figsize=(8, 1.5 + 0.28 * len(families)), layout="constrained"
    )
    axes = figure.subplots()
    for place, family in enumerate(families):
        low, high = family.interval
        color = _COLORS[family.outcome]
        axes.plot([low, high], [place, place], color=color)
        axes.plot(family.gain, place, "o", color=color)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.axvline(result.settings["threshold"], color="black", linewidth=0.8, linestyle="--")
    base = result.honest if result.baseline == "honest" and result.honest is not None else result.blank
    axes.axvline(result.reference - base, color="gray", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(families)), [family.family.replace("_", " ") for family in families], fontsize=8)
    axes.set_xlabel("gain on references not searched (dashed: threshold; dotted: the references themselves)")
    axes.set_title(
        f"{result.reward}: blank {result.blank:.3g}"
        + ("" if result.honest is None else f", honest {result.honest:.3g}")
        + f", reference {result.reference:.3g}",
        fontsize=10,
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
