"""``rrg-rewards score``: score report pairs, per pair and over the corpus."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.engine_options import add_engine_options, check_engine
from rrg_rewards.cli.html_options import add_html_options, check_html, write_html
from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    check_outputs,
    metric_settings,
)
from rrg_rewards.cli.reference_table import add_reference_table_options, with_references
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.metrics.base import ReportMetric

__all__ = [
    "add_command",
    "add_metric_options",
    "add_reference_options",
    "check_reference_options",
    "make_metrics",
    "resamples",
]

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

The table is read twice, in batches: first to check all rows, then to score them. Memory does not grow with the table,
except by 8 bytes for each row and metric, from which the interval is computed. --output is written while rows are
scored; for crg without a prior it is written at the end, because contributions depend on all references. If the run
fails, the rows scored so far are kept in NAME.partial.csv. - reads standard input and writes standard output.

--html writes a page that opens offline, with intervals, distributions, a table of all pairs and a view of each pair. It
contains no report text without --with-text. The scores of all pairs, and the texts, then stay in memory.

examples:
  rrg-rewards score pairs.csv --metrics crg --output scores.csv --json summary.json
  rrg-rewards score pairs.csv --metrics crg,crimson --html scores.html --with-text
  rrg-rewards score pairs.csv --metrics crg --prediction-column Pred --reference-column GT --labeler rules:chexbert
  rrg-rewards score pairs.csv --metrics crg --reference-label-prefix GT_     (labels set by hand: GT_Cardiomegaly, ...)
  rrg-rewards score pairs.jsonl --metrics crg --set crg.prior=0.2 --bootstrap 0
  rrg-rewards score submission.json --prediction-column report --references truth.csv --reference-column Findings_EN \\
      --key input_image_name=VolumeName --metrics crg
  generate-reports | rrg-rewards score - --format jsonl --metrics bleu,rouge --output - | head
  rrg-rewards score pairs.csv --metrics crg,crimson --context age=PatientAge --context indication=Indication
  rrg-rewards score pairs.csv --metrics crimson \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
  rrg-rewards score pairs.csv --metrics crg --labeler judge:ct_rate --judge local:my-model
  rrg-rewards score pairs.csv --metrics my_metrics:overlap --set my_metrics:overlap.higher_is_better=false

--list shows the metrics and their options.
"""


def resamples(text: str) -> int:
    """Parse a number of resamples, 0 or more.

    Raises:
        argparse.ArgumentTypeError: If the text is not such a number.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be 0 or a positive integer, got {text!r}")
    return int(text)


class _ListAction(argparse.Action):
    """Show the metrics and exit, without the required arguments."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:  # noqa: ARG002 (argparse's)
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from rrg_rewards.metrics.registry import available_metrics

        for name in available_metrics():
            Terminal().show(name, *_description(name))
        parser.exit()


def _description(name: str) -> list[str]:
    """Return what a metric needs, its context and its options, as lines."""
    from rrg_rewards.metrics.registry import metric_maker

    try:
        maker = metric_maker(name)
    except (ImportError, ValueError) as error:
        # A broken plug-in must not hide the other metrics.
        return [f"  error    {error}"]
    backends = [option for option in ("labeler", "judge") if option in maker.options]
    needs = [f"--set {name}.{option}=..." for option in maker.required] + [f"a {backend}" for backend in backends]
    return [
        f"  needs    {', '.join(needs) or 'nothing'}",
        f"  context  {', '.join(maker.context) or 'none'}",
        f"  options  {', '.join(maker.options) or 'none'}",
    ]


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``score`` to the command line."""
    parser = add_command_parser(commands, "score", _run, summary, _DESCRIPTION)
    add_table_argument(parser, "PAIRS", "report pairs")
    parser.add_argument(
        "--metrics",
        required=True,
        metavar="NAME[,NAME...]",
        help="metrics to compute, for example crg,crimson; module:Class or module:function is a metric of your own",
    )
    parser.add_argument(
        "--list", action=_ListAction, help="show the metrics, what each needs, its context and its options, and exit"
    )
    parser.add_argument(
        "--prediction-column", default="prediction", metavar="NAME", help="column of predictions (default: %(default)s)"
    )
    add_reference_options(parser)
    add_reference_table_options(parser, "column that names the study of each row [=its column in --references]")
    output = {"default": None, "help": "write the scores of each pair to FILE; - is standard output"}
    add_shared_options(parser, output=output)
    parser.add_argument(
        "--missing-prediction",
        choices=("skip", "score"),
        default="skip",
        help="skip: the pair is unscorable; score: the pair counts as an empty report (default: skip)",
    )
    add_metric_options(parser)
    parser.add_argument(
        "--bootstrap", type=resamples, default=1000, metavar="N", help="resamples; 0 for no interval (default: 1000)"
    )
    seed = {"help": "seed of the bootstrap (default: 0)"}
    add_shared_options(parser, "json", "format", "prefix", "overwrite", "batch-size", seed=seed)
    add_html_options(parser, names=True)
    add_engine_options(parser)


def add_reference_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of columns of references, which :func:`check_reference_options` checks."""
    parser.add_argument(
        "--reference-column",
        action="append",
        metavar="NAME",
        help="column of references (default: reference); may be repeated, for several references of each report",
    )
    parser.add_argument(
        "--best-reference",
        action="store_true",
        help="with several columns of references: metrics that are defined for one reference take the best one",
    )


def add_metric_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`make_metrics` and ``PairReader`` read."""
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
    from rrg_rewards.metrics.registry import metric_maker

    names = [name.strip() for name in text.split(",")]
    for name in names:
        try:
            metric_maker(name)
        except ValueError as error:
            raise UsageError(f"argument --metrics: {error}") from error
        if names.count(name) > 1:
            raise UsageError(f"argument --metrics: {name} is named more than once")
    return names


def make_metrics(args: argparse.Namespace) -> "dict[str, ReportMetric]":
    """Make the metrics of ``--metrics`` with the options of the command.

    Raises:
        UsageError: If a metric is unknown or lacks an option, or an option belongs to no metric.
    """
    from rrg_rewards.cli.judge_options import judge_from_option
    from rrg_rewards.cli.labeler_options import labeler_from_option
    from rrg_rewards.labelers.registry import needs_judge
    from rrg_rewards.metrics.registry import make_metric, required_options

    names = _metric_names(args.metrics)
    settings = metric_settings(args.set, names)
    judge_is_taken = False
    for name in _takers(names, "labeler", args.labeler):
        labeler = settings[name].get("labeler") or args.labeler or "rules:ct_rate"
        judge_is_taken = judge_is_taken or needs_judge(labeler)
        settings[name]["labeler"] = labeler_from_option(labeler, args.judge)
    for name in _takers(names, "judge", None if judge_is_taken else args.judge):
        settings[name]["judge"] = judge_from_option(settings[name].get("judge") or args.judge or "rules")
    for name in names:
        for option in required_options(name):
            if option not in settings[name]:
                value = "FOLDER" if option == "model" else "VALUE"
                raise UsageError(f"argument --metrics: {name} needs --set {name}.{option}={value}")
    try:
        metrics = [(name, make_metric(name, **settings[name])) for name in names]
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
    # A path is no name of a column.
    named = [metric.name if ":" in name else name for name, metric in metrics]
    for name in named:
        if named.count(name) > 1:
            raise UsageError(
                f"argument --metrics: two metrics have the name {name!r}; rename one: --set METRIC.name=NEW"
            )
    return dict(zip(named, (metric for _, metric in metrics), strict=True))


def _takers(names: list[str], option: str, given: str | None) -> list[str]:
    """Return the metrics that take an option; raise if the option is given and no metric takes it."""
    from rrg_rewards.metrics.registry import metric_options

    takers = [name for name in names if option in metric_options(name)]
    if given is not None and not takers:
        raise UsageError(f"argument --{option}: no metric among {','.join(names)} takes one")
    return takers


def check_reference_options(args: argparse.Namespace, metrics: "dict[str, ReportMetric]") -> None:
    """Raise if the options of references contradict each other or a metric.

    Raises:
        UsageError: If they do.
    """
    from rrg_rewards.metrics.references import check_references

    columns = args.reference_column or []
    if len(columns) < 2:
        if args.best_reference:
            raise UsageError(
                "argument --best-reference: requires several columns, --reference-column A --reference-column B"
            )
        return
    if len(set(columns)) < len(columns):
        raise UsageError(f"argument --reference-column: {', '.join(columns)} names a column more than once")
    if args.reference_labels or args.reference_label_prefix is not None:
        raise UsageError("argument --reference-column: reference labels replace one reference, not several")
    for metric in metrics.values():
        try:
            check_references(metric, args.best_reference)
        except ValueError as error:
            message = str(error).replace("best=True", "--best-reference")
            raise UsageError(f"argument --reference-column: {message}") from error


def _one_or_all(columns: list[str]) -> str | list[str] | None:
    return (columns[0] if columns else None) if len(columns) < 2 else columns


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.score_pairs import PairReader
    from rrg_rewards.cli.score_run import ScoreRun
    from rrg_rewards.cli.summary import CONFIDENCE, summary_tables
    from rrg_rewards.data.tables.readers import BatchedTable
    from rrg_rewards.data.tables.writers import write_json
    from rrg_rewards.version import __version__

    check_outputs(args)
    check_html(args)
    check_engine(args)
    metrics = make_metrics(args)
    check_reference_options(args, metrics)
    with BatchedTable(args.table, args.format, args.delimiter, args.batch_size) as batches:
        args, tables = with_references(args, batches)
        pairs = PairReader(args, tables, metrics)
        pairs.check(terminal)
        run = ScoreRun(args, pairs, terminal)
        try:
            run.write()
        finally:
            # A full disk must not lose the result of a long run.
            if run.is_complete:
                summary = {
                    "version": __version__,
                    "table": args.table,
                    "prediction_column": args.prediction_column,
                    "reference_column": _one_or_all(pairs.reference_columns),
                    "rows": pairs.rows,
                    "bootstrap": {"num_resamples": args.bootstrap, "confidence": CONFIDENCE, "seed": args.seed},
                    "metrics": run.summaries(),
                }
                terminal.show(*summary_tables(summary), stderr="-" in (args.output, args.json))
                if args.json is not None:
                    write_json(summary, args.json, args.overwrite)
                if args.html is not None:
                    write_html(args, run.page(summary))
    return 0
