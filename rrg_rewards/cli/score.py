"""``rrg-rewards score``: metrics of report pairs, one by one and over the corpus."""

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_common_options,
    add_table_options,
    check_outputs,
    metric_settings,
    new_parser_options,
    read_input,
    with_new_columns,
)
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.data.tables import Table
    from rrg_rewards.metrics.base import ReportMetric, Scores

__all__ = ["add_command"]

_DESCRIPTION = """\
Score predicted against reference reports. The table printed holds each metric's corpus value with a bootstrap 95 %
interval; --output adds the per-report scores, their parts and what went wrong in each report to the input columns.
A per-report score of crg is the report's contribution, whose mean m gives the corpus CRG as 1/(2 - m).

crimson asks a judge which findings a report misses, invents and misdescribes, and how much each matters: by rules, or
by a language model (--judge). What is known of the patient helps it: --context age=COLUMN, sex, indication. Pairs on
which a judge fails are unscorable; crimson_failure in --output says why.

A pair with a missing prediction or a missing or blank reference is unscorable: its cells are empty, and it is counted
and left out of the corpus value. An empty CSV cell is a missing one; see --missing-prediction.
"""

_EXAMPLE = """\
examples:
  rrg-rewards score pairs.csv --metrics crg --output scores.csv --json summary.json
  rrg-rewards score pairs.csv --metrics crg --prediction-column Pred --reference-column GT --labeler rules:chexbert
  rrg-rewards score pairs.csv --metrics crg --reference-label-prefix GT_     (labels set by hand: GT_Cardiomegaly, ...)
  rrg-rewards score pairs.jsonl --metrics crg --set crg.prior=0.2 --bootstrap 0
  rrg-rewards score pairs.csv --metrics crg,crimson --context age=PatientAge --context indication=Indication
  rrg-rewards score pairs.csv --metrics crimson \
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"

An unknown metric lists those that are known.
"""


def _resamples(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be 0 or a positive integer, got {text!r}")
    return int(text)


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``score`` to the command line."""
    parser = commands.add_parser(
        "score",
        help="score predicted against reference reports",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        **new_parser_options(),
    )
    parser.add_argument(
        "table", metavar="PAIRS", help="table of report pairs (.csv, .jsonl, .parquet); - is standard input"
    )
    parser.add_argument("--metrics", required=True, metavar="NAME[,NAME...]", help="metrics to compute, as in crg")
    parser.add_argument(
        "--prediction-column", default="prediction", metavar="NAME", help="column of predictions (default: %(default)s)"
    )
    parser.add_argument("--reference-column", metavar="NAME", help="column of references (default: reference)")
    parser.add_argument("--output", metavar="FILE", help="write per-report scores to FILE; - is standard output")
    _add_metric_options(parser)
    parser.add_argument(
        "--bootstrap", type=_resamples, default=1000, metavar="N", help="resamples; 0 for no interval (default: 1000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap (default: 0)")
    add_table_options(parser, new_columns="score columns")
    add_common_options(parser)
    parser.set_defaults(run=_run, parser=parser)


def _add_metric_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--labeler",
        metavar="NAME",
        help="labeler of metrics that use one: rules:SCHEMA or radbert:CHECKPOINT (default: rules:ct_rate)",
    )
    parser.add_argument(
        "--judge",
        metavar="JUDGE",
        help="judge of metrics that use one: rules, openai:MODEL, local:MODEL, or a mapping with a name and its "
        "settings (default: rules)",
    )
    parser.add_argument(
        "--reference-labels",
        action="store_true",
        help="take the references' labels from columns named as the labels, not from the reference text",
    )
    parser.add_argument("--reference-label-prefix", metavar="TEXT", help="the same, from columns named TEXT + label")
    parser.add_argument(
        "--missing-prediction",
        choices=("skip", "score"),
        default="skip",
        help="skip: the pair is unscorable; score: it counts as a report that says nothing (default: skip)",
    )
    parser.add_argument(
        "--context",
        action="append",
        default=[],
        metavar="NAME=COLUMN",
        help="give a metric a further column, as in age=patient_age; may be repeated",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="METRIC.OPTION=VALUE",
        help="set an option of a metric, as in crg.prior=0.2; may be repeated",
    )


def _metric_names(text: str) -> list[str]:
    from rrg_rewards.metrics.registry import metric_context

    names = [name.strip() for name in text.split(",")]
    for name in names:
        try:
            metric_context(name)
        except ValueError as error:
            raise UsageError(f"argument --metrics: {error}") from error
        if names.count(name) > 1:
            raise UsageError(f"argument --metrics: {name} is named more than once")
    return names


def _make_metrics(args: argparse.Namespace, report: Callable[[int, int], None]) -> "dict[str, ReportMetric]":
    from rrg_rewards.cli.judging import BatchedJudge, judge_from_option
    from rrg_rewards.cli.labeling import BatchedLabeler, labeler_from_option
    from rrg_rewards.metrics.registry import make_metric

    names = _metric_names(args.metrics)
    settings = metric_settings(args.set, names)
    for name in _takers(names, "labeler", args.labeler):
        labeler = labeler_from_option(settings[name].get("labeler") or args.labeler or "rules:ct_rate")
        settings[name]["labeler"] = BatchedLabeler(labeler, args.batch_size, report)
    for name in _takers(names, "judge", args.judge):
        judge = judge_from_option(settings[name].get("judge") or args.judge or "rules")
        settings[name]["judge"] = BatchedJudge(judge, args.batch_size, report)
    try:
        return {name: make_metric(name, **settings[name]) for name in names}
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


def _takers(names: list[str], option: str, given: str | None) -> list[str]:
    """The metrics that take an option; there must be one if it is given."""
    from rrg_rewards.metrics.registry import metric_options

    takers = [name for name in names if option in metric_options(name)]
    if given is not None and not takers:
        raise UsageError(f"argument --{option}: no metric among {','.join(names)} takes one")
    return takers


def _context(
    args: argparse.Namespace, table: "Table", metrics: "Mapping[str, ReportMetric]"
) -> dict[str, dict[str, Any]]:
    """Context columns of each metric."""
    from rrg_rewards.metrics.registry import metric_context

    context: dict[str, dict[str, Any]] = {name: {} for name in metrics}
    for text in args.context:
        key, equals, column = text.partition("=")
        takers = [name for name in metrics if key in metric_context(name)]
        if not equals:
            raise UsageError(f"argument --context: must be NAME=COLUMN, got {text!r}")
        if not takers:
            known = sorted({key for name in metrics for key in metric_context(name)})
            raise UsageError(
                f"argument --context: no metric among {','.join(metrics)} takes {key!r}; they take: {', '.join(known)}"
            )
        for name in takers:
            context[name][key] = table.column(column)
    if args.reference_labels or args.reference_label_prefix is not None:
        takers = [name for name in metrics if "target_labels" in metric_context(name)]
        if not takers:
            raise UsageError(f"argument --reference-labels: no metric among {','.join(metrics)} uses reference labels")
        for name in takers:
            labels = attrgetter("labeler.labels")(metrics[name])
            prefix = args.reference_label_prefix or ""
            context[name]["target_labels"] = table.labels([prefix + label for label in labels])
    return context


def _reference_column(args: argparse.Namespace, table: "Table", context: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Name of the column of reference texts; none is needed where every metric has the references' labels."""
    optional = args.reference_column is None and all("target_labels" in columns for columns in context.values())
    if optional and "reference" not in table.columns:
        return None
    return args.reference_column or "reference"


def _predictions(args: argparse.Namespace, table: "Table", terminal: Terminal) -> list[str | None]:
    predictions = table.texts(args.prediction_column)
    missing = predictions.count(None)
    if missing and args.missing_prediction == "score":
        return [text or "" for text in predictions]
    if missing:
        terminal.warn(
            f"{missing} of {len(table)} predictions are missing and left out of the corpus value; where the model "
            "wrote an empty report, use --missing-prediction score"
        )
    return predictions


def _score(
    metric: "ReportMetric",
    predictions: Sequence[str | None],
    references: Sequence[str | None],
    context: Mapping[str, Any],
    terminal: Terminal,
) -> "Scores":
    from rrg_rewards.cli.summary import failed_counts
    from rrg_rewards.metrics.judged import JudgeWarning

    with warnings.catch_warnings():
        # Told below, as this command tells things.
        warnings.simplefilter("ignore", JudgeWarning)
        scores = metric.score(predictions, references, **context)
    failed = {kind: count for kind, count in failed_counts(scores).items() if count}
    if failed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in failed.items())
        terminal.warn(
            f"the judge of {metric.name} failed on {sum(failed.values())} of {len(scores)} report pairs ({kinds}); "
            f"--output tells why in the column {metric.name}_failure"
        )
    return scores


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.summary import CONFIDENCE, metric_summary, per_report_columns, summary_tables
    from rrg_rewards.data.writers import write_json, write_table
    from rrg_rewards.version import __version__

    check_outputs(args)
    _metric_names(args.metrics)
    table = read_input(args, terminal)
    predictions = _predictions(args, table, terminal)
    columns: dict[str, Any] = {}
    entries: dict[str, Any] = {}
    with terminal.progress("scoring") as report:
        metrics = _make_metrics(args, report)
        context = _context(args, table, metrics)
        reference_column = _reference_column(args, table, context)
        references = [None] * len(table) if reference_column is None else table.texts(reference_column)
        for name, metric in metrics.items():
            scores = _score(metric, predictions, references, context[name], terminal)
            columns.update(per_report_columns(name, scores))
            entries[name] = metric_summary(metric, scores, args.bootstrap, args.seed)
    summary = {
        "version": __version__,
        "table": args.table,
        "prediction_column": args.prediction_column,
        "reference_column": reference_column,
        "rows": len(table),
        "bootstrap": {"num_resamples": args.bootstrap, "confidence": CONFIDENCE, "seed": args.seed},
        "metrics": entries,
    }
    if args.output is not None:
        scored = with_new_columns(table, columns, args.prefix, terminal)
        write_table(scored, args.output, args.format, args.overwrite)
    if args.json is not None:
        write_json(summary, args.json, args.overwrite)
    terminal.show(*summary_tables(summary), stderr="-" in (args.output, args.json))
    return 0
