"""The page of a watch, its plots and its history."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.writers import write_json
from rrg_rewards.pages.page import Page, write_page
from rrg_rewards.utilities.charts import Curves, cards
from rrg_rewards.utilities.markup import Markup, element, table
from rrg_rewards.watch.counts import Block

_TEXTS = {
    "words": "words per report",
    "repeated_sentences": "repeated sentences, share",
    "repeating_reports": "reports in which sentences follow themselves, share",
    "distinct_ngrams": "different n-grams, share",
    "distinct_reports": "different reports, share",
    "normal_reports": "normal where the reference is not, share",
    "positives": "positive labels per report",
    "unread_words": "words that the rules have not read, share",
}
# Labels in one chart: those with the largest changes.
_MOST_LABELS = 5

_Points = list[tuple[int, float]]


def write_watch_page(history: Mapping[str, Any], folder: str | Path) -> Path:
    """Write ``reward_watch.html`` and ``reward_watch.json``. Each file is written atomically.

    Args:
        history: The result of :meth:`rrg_rewards.watch.RewardWatch.history`.
        folder: Folder for the files; must exist.

    Returns:
        Path of the page, which contains the plots but no report text.
    """
    folder = Path(folder)
    write_json(history, folder / "reward_watch.json", overwrite=True)
    write_page(_page(history), folder / "reward_watch.html", overwrite=True)
    return folder / "reward_watch.html"


def _page(history: Mapping[str, Any]) -> Page:
    blocks = history["blocks"]
    causes = dict.fromkeys(alarm["cause"] for alarm in history["alarms"])
    verdict = f"{len(causes)} cause(s) of alarm: {', '.join(causes)}" if causes else "No alarm"
    stopped = " The run was stopped." if history["should_stop"] else ""
    reports = sum(block["reports"] for block in blocks)
    last = blocks[-1]["step"] if blocks else 0
    lead = f"{verdict}.{stopped} {reports} reports in {len(blocks)} blocks, to step {last}."
    curves = cards(watch_charts(history), wide=True)
    sections: dict[str, list[Markup]] = {}
    if history["alarms"]:
        sections["Alarms"] = [alarm_table(history)]
    if curves:
        sections["Curves"] = [element("p", "Dashed: references. Red: alarms.", class_="note"), *curves]
    sections["All checks at the last block"] = [_checks(history)]
    return Page("Reward watch", lead, sections)


def alarm_table(history: Mapping[str, Any]) -> Markup:
    """Return the alarms of a watch as a table."""
    rows = [
        [str(alarm["step"]), alarm["cause"], alarm["message"], f"{alarm['severity']:.2f}"]
        for alarm in history["alarms"]
    ]
    return table(["Step", "Cause", "Numbers", "Severity"], rows, "Alarms of the watch", numbers=False)


def _checks(history: Mapping[str, Any]) -> Markup:
    if not history["verdicts"]:
        return element("p", "There were too few reports to compare.")
    alarm = element("span", "alarm", class_="tag invented")
    rows = [
        [verdict["cause"], verdict["message"], f"{verdict['severity']:.2f}", alarm if verdict["fired"] else "-"]
        for verdict in sorted(history["verdicts"], key=lambda verdict: -verdict["severity"])
    ]
    return table(["Check", "Numbers", "Severity", "Result"], rows, "Checks, the highest severity first", numbers=False)


def watch_charts(history: Mapping[str, Any]) -> list[Curves]:
    """Return the charts of the texts, and of rewards and held-out metrics, with the alarms."""
    blocks = [Block.from_state_dict(block) for block in history["blocks"]]
    alarms = sorted({float(alarm["step"]) for alarm in history["alarms"]})
    panels = chain(_text_lines(blocks), _score_lines(blocks))
    known = ((title, {line: points for line, points in lines.items() if points}) for title, lines in panels)
    return [Curves(title, lines, alarms, dashed=("references",)) for title, lines in known if lines]


def _line(blocks: Sequence[Block], name: str) -> _Points:
    """Return a series as points (step, ratio)."""
    ratios = [(block.step, block.ratio(name)) for block in blocks]
    return [(step, total / count) for step, (total, count) in ratios if count > 0]


def _text_lines(blocks: Sequence[Block]) -> Iterator[tuple[str, dict[str, _Points]]]:
    """Yield the title of each chart of texts, and its lines by name."""
    for series, title in _TEXTS.items():
        lines = {side: _line(blocks, f"{side}/{series}") for side in ("completions", "references")}
        if lines["completions"]:
            yield title, lines
    labels = {
        label: _line(blocks, f"completions/positives/{label}") for label in _subjects(blocks, "completions/positives/")
    }
    moved = sorted(labels, key=lambda label: -abs(labels[label][-1][1] - labels[label][0][1]))[:_MOST_LABELS]
    yield "reports with a label, share: those that moved most", {label: labels[label] for label in moved}


def _score_lines(blocks: Sequence[Block]) -> Iterator[tuple[str, dict[str, _Points]]]:
    """Yield the title of each chart of rewards and held-out metrics, and its lines by name."""
    rewards, metrics = _subjects(blocks, "rewards/"), _subjects(blocks, "metrics/")
    for name in rewards:
        yield f"trained reward {name}", {name: _line(blocks, f"rewards/{name}")}
    for name in metrics:
        yield f"held-out {name}", {name: _line(blocks, f"metrics/{name}")}
    yield (
        "no reward, share",
        {
            name.replace("/", " "): _line(blocks, f"completions/{kind}{name}")
            for kind in ("failed/", "unscorable/")
            for name in _subjects(blocks, f"completions/{kind}")
        },
    )


def _subjects(blocks: Sequence[Block], prefix: str) -> list[str]:
    names = dict.fromkeys(name for block in blocks for name in block.sums)
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
