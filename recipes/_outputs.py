"""Output files of a run: configuration, tables, curves, page and model card."""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rrg_rewards.data import Table, write_json, write_table
from rrg_rewards.models.model_card import CARD_NAME, base_model, number, write_model_card
from rrg_rewards.pages import run_page, write_page
from rrg_rewards.recipes._data import RecipeData, is_file_name
from rrg_rewards.utilities.markup import markdown_table
from rrg_rewards.utilities.processes import process_index


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a non-empty sequence of rows with equal keys as a table."""
    write_table(Table({name: [row[name] for row in rows] for name in rows[0]}), path, overwrite=True)


def write_run_file(output_dir: str | Path, name: str, content: Any) -> None:
    """Write a JSON file to the output folder if this is the main process."""
    if process_index() == 0:
        folder = Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(content, folder / name, overwrite=True)


def write_card_and_page(output_dir: str | Path, method: str) -> None:
    """Write the model card and ``run.html`` of a finished run, without report text, on the main process.

    Args:
        output_dir: Output folder, which contains the other files of the run.
        method: Name of the training method.
    """
    if process_index() == 0:
        write_policy_card(output_dir, method)
        write_page(run_page(Path(output_dir)), Path(output_dir) / "run.html", overwrite=True)


def describe(recipe: Any, training: Any, model: Any, data: RecipeData) -> dict[str, Any]:
    """Return the content of ``run.json``: configuration, numbers of rows and processes, and versions of libraries."""
    return {
        "config": {**dataclasses.asdict(recipe), **training.to_dict(), **dataclasses.asdict(model)},
        "rows": {"train": len(data.train), "heldout": len(data.heldout), "left out": data.dropped},
        "processes": training.world_size,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the libraries that affect results."""
    return {name: version(name) for name in ("rrg-rewards", "torch", "transformers", "trl")}


_STAGES = {"before": "Before", "after": "After", "change": "Change", "images_of_others": "Images of other studies"}


@contextmanager
def kept_card(output_dir: str | Path) -> Iterator[None]:
    """Restore the card of the output folder after a block that saves an adapter, because PEFT writes one of its own."""
    path = Path(output_dir) / CARD_NAME
    before = path.read_bytes() if path.exists() else None
    yield
    if process_index() != 0:
        return
    if before is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(before)


def write_policy_card(folder: str | Path, method: str) -> bool:
    """Write the model card of a policy beside it, from ``run.json`` and the other JSON files of the run.

    ``evaluation.json`` gives the results on held-out rows, ``reward_watch.json`` the alarms of the watch, and
    ``attack*.json``, the output of ``rrg-rewards attack --json``, the results of attacks. The card contains no report
    text.

    Args:
        folder: Output folder of the run.
        method: Name of the training method, such as ``GRPO``.

    Returns:
        Whether the card was written; see :func:`~rrg_rewards.models.model_card.write_model_card`.
    """
    folder = Path(folder).resolve()
    run = _read(folder / "run.json")
    config = run["config"]
    evaluation = _read(folder / "evaluation.json") if (folder / "evaluation.json").exists() else {}
    adapter = (folder / "adapter_config.json").exists()
    metadata = {
        "model_name": folder.name,
        "language": "en",
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "image-text-to-text" if config["image_column"] else "text-generation",
        "tags": ["radiology", "report-generation", method.lower(), "trl", "rrg-rewards"],
        **base_model(config["model_name_or_path"]),
    }
    versions = run["versions"]
    about = (
        f"A generator of radiology reports, trained from `{Path(config['model_name_or_path']).name}` by {method} with "
        f"rrg-rewards {versions['rrg-rewards']} and TRL {versions['trl']}."
    )
    sections = {
        "Use": _use(config, adapter),
        "Data": _data(run),
        "Rewards": _rewards(run),
        "Evaluation": _evaluation(evaluation, run),
        "Limits": _limits(run),
    }
    parts = [f"# {folder.name}", about, *(f"## {title}\n\n{text}" for title, text in sections.items() if text)]
    return write_model_card(folder, metadata, _results(evaluation, config), "\n\n".join(parts))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _use(config: Mapping[str, Any], adapter: bool) -> str:
    system = config["system_prompt"]
    if system is not None and Path(system).suffix in (".txt", ".py"):
        # The folder of a path may name persons or places.
        system = Path(system).name
    prompts = {
        "--input-column": config["input_column"] if "{input" in config["prompt_template"] else None,
        "--prompt-template": config["prompt_template"],
        "--system-prompt": system,
        "--image-column": config["image_column"],
        # The length of TRL's trainers, or of PolicyModule.
        "--max-new-tokens": config.get("max_completion_length", config.get("max_new_tokens")),
    }
    options = [part for option, value in prompts.items() if value is not None for part in (option, str(value))]
    plain = [] if config["conversational"] else ["--plain"]
    model = "MERGED" if adapter else "FOLDER"
    merge = ["rrg-rewards convert lora FOLDER --output MERGED"] if adapter else []
    generate = f"rrg-rewards generate REPORTS.jsonl --model {model} {shlex.join([*options, *plain])} --output PAIRS.csv"
    return (
        "`FOLDER` is the folder of this card"
        + ("; it contains an adapter, which the first line merges into its base model" if adapter else "")
        + f", `REPORTS.jsonl` your table and `PAIRS.csv` the output. The options are the prompts of the training, with "
        "the columns of its table:\n\n"
        f"```\n{chr(10).join([*merge, generate])}\n```\n\n"
        "If the table has references, score the reports:\n\n"
        f"```\nrrg-rewards score PAIRS.csv --reference-column {shlex.quote(config['reference_column'])}\n```"
    )


def _data(run: Mapping[str, Any]) -> str:
    rows = run["rows"]
    left_out = ", ".join(f"{count} ({reason})" for reason, count in rows["left out"].items() if count) or "none"
    # The file of held-out rows is named if there is one.
    names = dict.fromkeys((_source(run["config"]["dataset"]), _heldout_source(run["config"])))
    return markdown_table(
        ("Source", "Training rows", "Held-out rows", "Left out"),
        [(", held out: ".join(names), str(rows["train"]), str(rows["heldout"]), left_out)],
    )


def _heldout_source(config: Mapping[str, Any]) -> str:
    return _source(config.get("heldout_file") or config["dataset"])


def _source(name: str) -> str:
    """Return the name of a data set, without the folder of a path, which may name persons or places."""
    return Path(name).name if is_file_name(name) or not base_model(name) else name


def _rewards(run: Mapping[str, Any]) -> str:
    rows = [(f"`{one['name']}`", f"{one['weight']:g}", f"`{one['signature']}`") for one in run.get("rewards", [])]
    return markdown_table(("Reward", "Weight", "Signature"), rows) if rows else ""


def _evaluation(evaluation: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    if not evaluation:
        return "The run evaluated no held-out rows."
    stages = [stage for stage in _STAGES if stage in evaluation]
    rows = []
    for reward, summary in evaluation["after"].items():
        for name in (name for name in summary if name != "unscorable"):
            cells = (evaluation[stage][reward][name] for stage in stages)
            shown = [number(cell["estimate"], (cell["low"], cell["high"])) for cell in cells]
            rows.append((f"`{reward}`", name.replace("_", " "), *shown))
    unscorable = ", ".join(f"`{reward}` {summary['unscorable']}" for reward, summary in evaluation["after"].items())
    return (
        f"Greedy reports for {run['rows']['heldout']} held-out rows, before and after training. In parentheses: "
        "bootstrap interval over reports, 95 %; that of the change is paired. Reports without a score after training: "
        f"{unscorable}.\n\n" + markdown_table(("Reward", "Statistic", *(_STAGES[stage] for stage in stages)), rows)
    )


def _limits(run: Mapping[str, Any]) -> str:
    lines = [
        "- Not a medical device. The reports must not be used for patients.",
        "- The held-out rows are of the same source as the training rows. Other hospitals, scanners and languages were "
        "not evaluated.",
    ]
    if "rewards" in run:
        lines.append(
            "- The evaluation uses the metrics that were trained as rewards. A higher value is no proof of better "
            "reports: judge the model by metrics of another kind and by radiologists, too."
        )
    return "\n".join(lines)


def _results(evaluation: Mapping[str, Any], config: Mapping[str, Any]) -> list[dict[str, Any]]:
    results = []
    for reward, summary in evaluation.get("after", {}).items():
        # The corpus statistic of a reward is CRG if it has one, else the mean score.
        main = "crg" if "crg" in summary else "score"
        if summary[main]["estimate"] is None:
            # No report has a score. The Hub rejects a result without a value; the table of the card has a dash.
            continue
        results.append(
            {
                "task_type": "text-generation",
                "task_name": "radiology report generation",
                "dataset_type": "held-out",
                "dataset_name": f"held-out rows of {_heldout_source(config)}",
                "metric_type": reward,
                "metric_name": f"{reward}: {main}",
                "metric_value": summary[main]["estimate"],
            }
        )
    return results
