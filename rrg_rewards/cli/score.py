"""``rrg-rewards score``: score report pairs, per pair and over the corpus."""

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    check_outputs,
    metric_settings,
    read_assignments,
    read_input,
    with_new_columns,
    write_outputs,
)
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.metrics.base import ReportMetric, Scores

__all__ = ["add_command"]

# What pandas and others write for a missing cell.
_PLACEHOLDERS = frozenset({"nan", "none", "null", "n/a", "<na>"})

_DESCRIPTION = """\
Score predicted reports against reference reports, and print the corpus value of each metric with a bootstrap 95 %
interval. --output writes the input columns and, for each pair, its score, the parts of the score and explanations. The
crg score of a pair is its contribution; if the mean contribution is m, the corpus CRG is 1/(2 - m).

For crimson, a judge decides which findings a report misses, invents or misdescribes, and how much each error matters.
The judge uses rules, or a language model (--judge). It also uses the columns age, sex and indication that --context
names, as in --context age=COLUMN. A pair on which the judge fails is unscorable; the column crimson_failure of --output
contains the reason.

A pair with a missing prediction, or a missing or blank reference, is unscorable: its cells are empty, and it is counted
and left out of the corpus value. An empty CSV cell is missing; see --missing-prediction.

examples:
  rrg-rewards score pairs.csv --metrics crg --output scores.csv --json summary.json
  rrg-rewards score pairs.csv --metrics crg --prediction-column Pred --reference-column GT --labeler rules:chexbert
  rrg-rewards score pairs.csv --metrics crg --reference-label-prefix GT_     (labels set by hand: GT_Cardiomegaly, ...)
  rrg-rewards score pairs.jsonl --metrics crg --set crg.prior=0.2 --bootstrap 0
  rrg-rewards score pairs.csv --metrics crg,crimson --context age=PatientAge --context indication=Indication
  rrg-rewards score pairs.csv --metrics crimson \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"

--list shows the metrics and their options.
"""


def _resamples(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be 0 or a positive integer, got {text!r}")
    return int(text)


class _ListAction(argparse.Action):
    """Show the metrics and exit, without the required arguments."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:  # noqa: ARG002 (argparse's)
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from rrg_rewards.metrics.registry import available_metrics, metric_context, metric_options, required_options

        for name in available_metrics():
            required, options = required_options(name), metric_options(name)
            backends = [option for option in ("labeler", "judge") if option in options]
            needs = [f"--set {name}.{option}=..." for option in required] + [f"a {backend}" for backend in backends]
            Terminal().show(
                name,
                f"  needs    {', '.join(needs) or 'nothing'}",
                f"  context  {', '.join(metric_context(name)) or 'none'}",
                f"  options  {', '.join(options) or 'none'}",
            )
        parser.exit()


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``score`` to the command line."""
    parser = add_command_parser(commands, "score", _run, "score predicted against reference reports", _DESCRIPTION)
    add_table_argument(parser, "PAIRS", "report pairs")
    parser.add_argument(
        "--metrics", required=True, metavar="NAME[,NAME...]", help="metrics to compute, for example crg,crimson"
    )
    parser.add_argument(
        "--list", action=_ListAction, help="show the metrics, what each needs, its context and its options, and exit"
    )
    parser.add_argument(
        "--prediction-column", default="prediction", metavar="NAME", help="column of predictions (default: %(default)s)"
    )
    parser.add_argument("--reference-column", metavar="NAME", help="column of references (default: reference)")
    output = {"default": None, "help": "write the scores of each pair to FILE; - is standard output"}
    add_shared_options(parser, output=output)
    parser.add_argument(
        "--missing-prediction",
        choices=("skip", "score"),
        default="skip",
        help="skip: the pair is unscorable; score: the pair counts as an empty report (default: skip)",
    )
    _add_metric_options(parser)
    parser.add_argument(
        "--bootstrap", type=_resamples, default=1000, metavar="N", help="resamples; 0 for no interval (default: 1000)"
    )
    seed = {"help": "seed of the bootstrap (default: 0)"}
    add_shared_options(parser, "json", "format", "prefix", "overwrite", "batch-size", seed=seed)


def _add_metric_options(parser: argparse.ArgumentParser) -> None:
    add_shared_options(parser, "labeler", "judge", "context", "set")
    parser.add_argument(
        "--reference-labels",
        action="store_true",
        help="read the reference labels from columns named like the labels, not from the reference text",
    )
    parser.add_argument(
        "--reference-label-prefix", metavar="TEXT", help="read the reference labels from columns named TEXT + label"
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
    from rrg_rewards.cli.judge_options import BatchedJudge, judge_from_option
    from rrg_rewards.cli.labeler_options import BatchedLabeler, labeler_from_option
    from rrg_rewards.metrics.registry import make_metric, required_options

    names = _metric_names(args.metrics)
    settings = metric_settings(args.set, names)
    for name in _takers(names, "labeler", args.labeler):
        labeler = labeler_from_option(settings[name].get("labeler") or args.labeler or "rules:ct_rate")
        settings[name]["labeler"] = BatchedLabeler(labeler, args.batch_size, report)
    for name in _takers(names, "judge", args.judge):
        judge = judge_from_option(settings[name].get("judge") or args.judge or "rules")
        settings[name]["judge"] = BatchedJudge(judge, args.batch_size, report)
    for name in names:
        for option in required_options(name):
            if option not in settings[name]:
                value = "FOLDER" if option == "model" else "VALUE"
                raise UsageError(f"argument --metrics: {name} needs --set {name}.{option}={value}")
    try:
        return {name: make_metric(name, **settings[name]) for name in names}
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


def _takers(names: list[str], option: str, given: str | None) -> list[str]:
    """Return the metrics that take an option; raise if the option is given and no metric takes it."""
    from rrg_rewards.metrics.registry import metric_options

    takers = [name for name in names if option in metric_options(name)]
    if given is not None and not takers:
        raise UsageError(f"argument --{option}: no metric among {','.join(names)} takes one")
    return takers


def _context(
    args: argparse.Namespace, table: "Table", metrics: "Mapping[str, ReportMetric]"
) -> dict[str, dict[str, Any]]:
    """Return the context columns of each metric."""
    from rrg_rewards.metrics.registry import metric_context

    context: dict[str, dict[str, Any]] = {name: {} for name in metrics}
    for key, column in read_assignments("--context", "NAME=COLUMN", args.context).items():
        takers = [name for name in metrics if key in metric_context(name)]
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
    """Return the column of reference texts; ``None`` if it is missing and every metric has reference labels."""
    optional = args.reference_column is None and all("target_labels" in columns for columns in context.values())
    if optional and "reference" not in table.columns:
        return None
    return args.reference_column or "reference"


def _warn_of_placeholders(texts: Sequence[str | None], column: str, terminal: Terminal) -> None:
    """Warn of texts that other programs write for a missing cell. They are scored as texts."""
    words = [text for text in texts if text is not None and text.strip().lower() in _PLACEHOLDERS]
    if words:
        terminal.warn(
            f"{len(words)} of {len(texts)} cells of column {column!r} are texts such as {words[0]!r} and are scored as "
            "reports; leave a cell empty (CSV) or null (JSON) if its report is missing"
        )


def _predictions(args: argparse.Namespace, table: "Table", terminal: Terminal) -> list[str | None]:
    predictions = table.texts(args.prediction_column)
    _warn_of_placeholders(predictions, args.prediction_column, terminal)
    missing = predictions.count(None)
    if missing and args.missing_prediction == "score":
        return [text or "" for text in predictions]
    if missing:
        terminal.warn(
            f"{missing} of {len(table)} predictions are missing and left out of the corpus value; if the model "
            "wrote empty reports, use --missing-prediction score"
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
        # The command prints its own warning below.
        warnings.simplefilter("ignore", JudgeWarning)
        scores = metric.score(predictions, references, **context)
    failed = {kind: count for kind, count in failed_counts(scores).items() if count}
    if failed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in failed.items())
        terminal.warn(
            f"the judge of {metric.name} failed on {sum(failed.values())} of {len(scores)} report pairs ({kinds}); "
            f"the column {metric.name}_failure of --output gives the reasons"
        )
    return scores


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.summary import CONFIDENCE, metric_summary, per_report_columns, summary_tables
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
        _warn_of_placeholders(references, reference_column or "", terminal)
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
    scored = table if args.output is None else with_new_columns(table, columns, args.prefix, terminal)
    try:
        write_outputs(args, scored, summary)
    finally:
        # A full disk must not lose the result of a long run.
        terminal.show(*summary_tables(summary), stderr="-" in (args.output, args.json))
    return 0
