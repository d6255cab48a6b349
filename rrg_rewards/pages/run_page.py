"""The page of a training run, from the files that a recipe writes to its output folder, and the plot of a reward."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.attack.results import AttackResult
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.pages.attack_page import attack_sections
from rrg_rewards.pages.page import Column, Page, Pane, Rows
from rrg_rewards.pages.watch_page import alarm_table, watch_charts
from rrg_rewards.utilities.charts import Curves, Interval, Intervals, cards
from rrg_rewards.utilities.checks import is_finite
from rrg_rewards.utilities.markup import Markup, element, shown_interval, shown_number, table

# Logged values besides the means of the rewards, with their captions.
_LOGGED = {
    "reward": "reward, weighted sum",
    "loss": "loss",
    "eval_loss": "loss on held-out rows",
    "kl": "Kullback-Leibler divergence from the initial policy",
    "entropy": "entropy",
    "completions/mean_length": "tokens per completion",
    "completions/clipped_ratio": "completions that are cut, share",
}
_STAGES = {"before": "before", "after": "after", "images_of_others": "images of others"}


def run_page(folder: str | Path, with_text: bool = False) -> Page:
    """Return the page of a run: learning curves, held-out evaluation, reward watch, attack, and examples.

    It joins ``history.json``, ``evaluation.json``, ``reward_watch.json``, ``run.json`` and ``attack.json``, the file
    that ``rrg-rewards attack`` writes; each is left out if the folder does not contain it.

    Args:
        folder: Output folder of the run.
        with_text: Whether the page contains the held-out reports before and after training.

    Raises:
        TableError: If the folder contains none of the files, or one is not JSON.
    """
    folder = Path(folder)
    read = {name: _read(folder / f"{name}.json") for name in ("run", "history", "evaluation", "reward_watch", "attack")}
    if all(content is None for content in read.values()):
        raise TableError(f"{folder}: contains none of the files of a run: history.json, evaluation.json, run.json")
    sections: dict[str, Sequence[Markup]] = {}
    if read["evaluation"]:
        sections["Held-out evaluation"] = list(_evaluation(read["evaluation"]))
    if read["history"]:
        sections["Learning curves"] = _curves(read["history"])
    if read["reward_watch"]:
        sections["Reward watch"] = list(_watch(read["reward_watch"]))
    if read["attack"]:
        for heading, parts in attack_sections(AttackResult.from_dict(read["attack"])).items():
            sections[f"Attack: {heading.lower()}"] = parts
    config = (read["run"] or {}).get("config", {})
    rows = _examples(folder, config.get("reference_column", "reference")) if with_text else None
    shown = {heading: parts for heading, parts in sections.items() if parts}
    return Page(f"Run {folder.resolve().name}", _lead(read), shown, rows, _facts(read["run"] or {}))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError as error:
        raise TableError(f"{path}: not a JSON document: {error}") from error


def _lead(read: Mapping[str, Any]) -> str:
    parts = []
    steps = [entry["step"] for entry in read["history"] or () if "step" in entry]
    if steps:
        parts.append(f"{max(steps)} steps")
    for name, statistics in ((read["evaluation"] or {}).get("change") or {}).items():
        main = "crg" if "crg" in statistics else "score"
        change = statistics[main]
        between = shown_interval(change["low"], change["high"])
        parts.append(f"{name} changed by {shown_number(change['estimate'])} ({between})")
    if read["reward_watch"]:
        causes = dict.fromkeys(alarm["cause"] for alarm in read["reward_watch"]["alarms"])
        parts.append(f"alarms of the watch: {', '.join(causes)}" if causes else "no alarm of the watch")
    if read["attack"]:
        parts.append(f"attack: {read['attack']['verdict']}")
    if not parts:
        return "There is no result yet."
    # Only the first letter: names of rewards keep theirs.
    lead = "; ".join(parts)
    return f"{lead[0].upper()}{lead[1:]}."


def _facts(run: Mapping[str, Any]) -> dict[str, str]:
    facts = {f"Version of {name}": version for name, version in run.get("versions", {}).items()}
    facts |= {f"Rows, {name}": str(count) for name, count in run.get("rows", {}).items()}
    return facts | {f"Reward {one['name']}": one["signature"] for one in run.get("rewards", ())}


def _evaluation(evaluation: Mapping[str, Any]) -> Iterator[Markup]:
    stages = [stage for stage in _STAGES if stage in evaluation]
    for reward in evaluation[stages[0]] if stages else ():
        names = [name for name, entry in evaluation[stages[0]][reward].items() if isinstance(entry, Mapping)]
        columns = [*stages, *(["change"] if "change" in evaluation else [])]
        cells = [
            [name.replace("_", " "), *(_estimate(evaluation[stage][reward].get(name)) for stage in columns)]
            for name in names
        ]
        heads = ["Statistic", *(_STAGES.get(stage, stage) for stage in columns)]
        yield table(heads, cells, f"{reward} on held-out rows, greedy decoding, 95 % intervals")
        main = "crg" if "crg" in names else "score"
        shown = {_STAGES[stage]: evaluation[stage].get(reward, {}).get(main) for stage in stages}
        rows = [
            Interval(name, entry["estimate"], entry["low"], entry["high"])
            for name, entry in shown.items()
            if entry and None not in (entry["estimate"], entry["low"], entry["high"])
        ]
        if rows:
            yield Intervals(f"{reward}: {main} on held-out rows", rows).svg()


def _estimate(entry: Mapping[str, float | None] | None) -> str:
    if entry is None:
        return "-"
    return f"{shown_number(entry['estimate'])} ({shown_interval(entry['low'], entry['high'])})"


def _curves(history: Sequence[Mapping[str, Any]]) -> list[Markup]:
    keys = dict.fromkeys(key for entry in history for key in entry)
    rewards = [key for key in keys if key.startswith("rewards/") and key.endswith("/mean")]
    captions = {key: f"reward {key.split('/')[1]}, mean" for key in rewards}
    captions |= {key: caption for key, caption in _LOGGED.items() if key in keys}
    charts = [_curve(history, key, caption) for key, caption in captions.items()]
    return cards((chart for chart in charts if chart.lines), wide=True)


def _curve(history: Sequence[Mapping[str, Any]], key: str, caption: str) -> Curves:
    points = [(entry["step"], entry[key]) for entry in history if "step" in entry and is_finite(entry.get(key))]
    return Curves(caption, {key: points} if points else {})


def _watch(history: Mapping[str, Any]) -> Iterator[Markup]:
    yield alarm_table(history) if history["alarms"] else element("p", "No alarm.")
    charts = watch_charts(history)
    yield element("details", element("summary", f"Show {len(charts)} curves of the watch"), *cards(charts, wide=True))


def _examples(folder: Path, reference_column: str) -> Rows | None:
    """Return the held-out reports of each stage."""
    found: dict[str, Table] = {}
    for stage, name in _STAGES.items():
        path = folder / f"heldout_{stage}.jsonl"
        if path.is_file():
            found[name] = read_table(path)
    if not found:
        return None
    first = next(iter(found.values()))
    panes = [Pane("Reference", first.texts(reference_column))] if reference_column in first.columns else []
    panes += [Pane(name.capitalize(), one.texts("report")) for name, one in found.items()]
    columns = [
        Column(f"words {pane.title.lower()}", [None if text is None else len(text.split()) for text in pane.texts])
        for pane in panes
    ]
    return Rows("report", [str(row + 1) for row in range(len(first))], columns, panes)
