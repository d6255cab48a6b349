"""Output files of a watch: an HTML page, plots and the history."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.writers import open_output, write_json
from rrg_rewards.utilities.imports import require
from rrg_rewards.watch.counts import Block
from rrg_rewards.watch.statistics import agreement

__all__ = ["score_panels", "text_panels", "write_watch_page"]

_TEXTS = {
    "words": "words per report",
    "repeated_sentences": "repeated sentences, share",
    "distinct_ngrams": "different n-grams, share",
    "distinct_reports": "different reports, share",
    "normal_reports": "normal where the reference is not, share",
    "positives": "positive labels per report",
    "findings": "findings per report",
    "hedged_findings": "uncertain and alternative findings per report",
    "sizes": "sizes per report",
    "hedged_sentences": "sentences with words of uncertainty, share",
    "unknown_words": "words that are in no reference, share",
    "instructions": "instructions aimed at a judge, share",
}
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}img{max-width:100%}"
    "table{border-collapse:collapse}td,th{padding:.2em .7em;border-bottom:1px solid #ccc;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}.fired{background:#fdd}"
)


def write_watch_page(history: Mapping[str, Any], folder: str | Path) -> Path:
    """Write ``reward_watch.html``, ``reward_watch_*.png`` and ``reward_watch.json``. Each file is written atomically.

    Args:
        history: The result of :meth:`rrg_rewards.watch.RewardWatch.history`.
        folder: Folder for the files; must exist.

    Returns:
        Path of the page, which contains the plots but no report text.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed; the message contains the pip command.
    """
    folder = Path(folder)
    blocks = [Block.from_state_dict(block) for block in history["blocks"]]
    steps = sorted({int(alarm["step"]) for alarm in history["alarms"]})
    plots = {
        name: _png(panels, steps)
        for name, panels in (("texts", text_panels(blocks)), ("scores", score_panels(blocks)))
        if panels
    }
    for name, image in plots.items():
        with open_output(folder / f"reward_watch_{name}.png", overwrite=True) as file:
            file.write(image)
    write_json(history, folder / "reward_watch.json", overwrite=True)
    page = folder / "reward_watch.html"
    with open_output(page, overwrite=True) as file:
        file.write(_page(history, blocks, plots).encode())
    return page


_Panel = tuple[str, dict[str, list[tuple[int, float]]]]


def _line(blocks: Sequence[Block], name: str) -> list[tuple[int, float]]:
    """Return a series as points (step, ratio)."""
    ratios = [(block.step, block.ratio(name)) for block in blocks]
    return [(step, of / over) for step, (of, over) in ratios if over > 0]


def text_panels(blocks: Sequence[Block]) -> list[_Panel]:
    """Return the curves of the texts: title of each plot, and its lines of points (step, value) by name."""
    panels: list[_Panel] = []
    for series, title in _TEXTS.items():
        lines = {side: _line(blocks, f"{side}/{series}") for side in ("completions", "references")}
        panels += [(title, {side: line for side, line in lines.items() if line})] if lines["completions"] else []
    labels = _subjects(blocks, "completions/positives/")
    if labels:
        lines = {label: _line(blocks, f"completions/positives/{label}") for label in labels}
        # Show the labels with the largest changes.
        moved = sorted(lines, key=lambda label: -abs(lines[label][-1][1] - lines[label][0][1]))[:5]
        panels.append(("reports with a label, share: those that moved most", {label: lines[label] for label in moved}))
    return panels


def score_panels(blocks: Sequence[Block]) -> list[_Panel]:
    """Return the curves of rewards and held-out metrics, in the form of :func:`text_panels`."""
    rewards, metrics = _subjects(blocks, "rewards/"), _subjects(blocks, "metrics/")
    panels: list[_Panel] = [(f"trained reward {name}", {name: _line(blocks, f"rewards/{name}")}) for name in rewards]
    panels += [(f"held-out {name}", {name: _line(blocks, f"metrics/{name}")}) for name in metrics]
    together = {
        f"{reward}, {metric}": [
            (block.step, value)
            for block in blocks
            if (value := agreement([block], reward, metric)) == value  # no NaN
        ]
        for reward in rewards
        for metric in metrics
    }
    panels += [("agreement (correlation)", together)] if any(together.values()) else []
    failures = {
        f"{name.replace('/', ' ')}": _line(blocks, f"completions/{kind}{name}")
        for kind in ("failed/", "unscorable/")
        for name in _subjects(blocks, f"completions/{kind}")
    }
    panels += [("no reward, share", failures)] if failures else []
    return [(title, lines) for title, lines in panels if any(lines.values())]


def _subjects(blocks: Sequence[Block], prefix: str) -> list[str]:
    names = dict.fromkeys(name for block in blocks for name in block.sums)
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def _png(panels: Sequence[_Panel], alarms: Sequence[int]) -> bytes:
    columns = 2
    rows = -(-len(panels) // columns)
    figure = require("matplotlib.figure", extra="plot").Figure(figsize=(10, 2.6 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(panels):
            axes.axis("off")
            continue
        title, lines = panels[place]
        for name, points in lines.items():
            style = {"linestyle": "--", "color": "gray"} if name == "references" else {"marker": "."}
            axes.plot([step for step, _ in points], [value for _, value in points], label=name, **style)
        for step in alarms:
            axes.axvline(step, color="red", linewidth=0.7, alpha=0.5)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
        axes.tick_params(labelsize=8)
        if len(lines) > 1:
            axes.legend(fontsize=7, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _page(history: Mapping[str, Any], blocks: Sequence[Block], plots: Mapping[str, bytes]) -> str:
    alarms = history["alarms"]
    reports = sum(block.reports for block in blocks)
    causes = dict.fromkeys(alarm["cause"] for alarm in alarms)
    verdict = f"{len(causes)} cause(s) of alarm: {', '.join(causes)}" if causes else "No alarm."
    stopped = " The run was stopped." if history["should_stop"] else ""
    last = blocks[-1].step if blocks else 0
    images = [
        f'<img alt="{name} over training steps" src="data:image/png;base64,{base64.b64encode(image).decode()}">'
        for name, image in plots.items()
    ]
    warned = [[str(alarm["step"]), alarm["cause"], alarm["message"], f"{alarm['severity']:.2f}"] for alarm in alarms]
    checked = [
        [verdict["cause"], verdict["message"], f"{verdict['severity']:.2f}", "alarm" if verdict["fired"] else ""]
        for verdict in sorted(history["verdicts"], key=lambda verdict: -verdict["severity"])
    ]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Reward watch</title>",
        f"<style>{_STYLE}</style><h1>Reward watch</h1>",
        f"<p><strong>{escape(verdict)}</strong>{stopped}",
        f"{reports} reports in {len(blocks)} blocks, to step {last}.</p>",
        "<h2>Alarms</h2>" + _table(["step", "cause", "numbers", "severity"], warned) if warned else "",
        "<h2>Curves</h2><p>Dashed: references. Red: alarms.</p>" if images else "",
        *images,
        "<h2>All checks at the last block</h2>" + _table(["check", "numbers", "severity", ""], checked)
        if checked
        else "<p>There were too few reports to compare.</p>",
        "</html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join(
        f"<tr{' class=fired' if row[-1] == 'alarm' else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
