"""Options made from settings, and the files of a command."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from rrg_rewards.cli.main import COMMANDS, _parser
from rrg_rewards.cli.options import (
    CommandParser,
    Outputs,
    PageOptions,
    UsageError,
    add_settings,
    add_shared_options,
    settings_from,
    with_options,
)
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.utilities.settings import SettingError, setting


@dataclass(frozen=True)
class Settings:
    table: str = setting(help="input", metavar="FILE")
    metrics: Sequence[str] = setting((), "metrics", separator=",")
    reference_column: str | Sequence[str] | None = setting(None, "references")
    context: Mapping[str, str] = setting({}, "context", form="NAME=COLUMN")
    set: Mapping[str, Any] = setting({}, "options", form="METRIC.OPTION=VALUE")
    kind: Literal["skip", "score"] = setting("skip", "what to do")
    quick: bool = setting(False, "quick")
    draws: int = setting(1000, "draws", minimum=0)
    rows: int = setting(256, "rows", minimum=1)
    seed: int = setting(0, "seed")
    share: float | None = setting(None, "share")
    hidden: int = 7


@pytest.fixture
def parser():
    made = CommandParser(prog="test", description="Test.\nexample")
    add_settings(made, Settings)
    return made


def parsed(parser, *arguments):
    return settings_from(parser.parse_args(["--table", "a.csv", *arguments]), Settings)


def test_add_settings_keeps_the_defaults_of_the_fields(parser):
    assert parsed(parser) == Settings(table="a.csv")


def test_add_settings_parses_each_kind_of_field(parser):
    arguments = ["--metrics", "crg, rouge", "--reference-column", "a", "--reference-column", "b", "--kind", "score"]
    arguments += ["--context", "age=Age", "--context", "sex=Sex", "--set", "crg.prior=0.2", "--set", "m.x=[1, a]"]
    arguments += ["--quick", "--draws", "0", "--rows", "2", "--seed", "-1", "--share", "0.5"]
    assert parsed(parser, *arguments) == Settings(
        table="a.csv",
        metrics=("crg", "rouge"),
        reference_column=["a", "b"],
        context={"age": "Age", "sex": "Sex"},
        set={"crg.prior": 0.2, "m.x": [1, "a"]},
        kind="score",
        quick=True,
        draws=0,
        rows=2,
        seed=-1,
        share=0.5,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "0"], "argument --rows: must be an integer, at least 1, got 0"),
        (["--draws", "-1"], "argument --draws"),
        (["--share", "nan"], "argument --share: must be a number, got nan"),
        (["--kind", "drop"], "argument --kind: invalid choice: 'drop'"),
        (["--context", "age"], "argument --context: must be NAME=COLUMN, got 'age'"),
        (["--set", "prior"], "argument --set: must be METRIC.OPTION=VALUE, got 'prior'"),
        (["--set", "crg.prior=["], "argument --set: cannot read the value of 'crg.prior=['"),
        (["--seed", "1", "--seed", "2"], "argument --seed: is given more than once"),
        (["--hidden", "1"], "unrecognized arguments"),
    ],
    ids=str,
)
def test_add_settings_refuses_a_wrong_value(parser, capsys, arguments, message):
    with pytest.raises(SystemExit):
        parsed(parser, *arguments)
    assert message in capsys.readouterr().err


def test_add_settings_requires_a_field_without_a_default(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "the following arguments are required: --table" in capsys.readouterr().err


def test_add_settings_takes_changes_and_an_order():
    made = argparse.ArgumentParser()
    add_settings(made, Settings, "seed", "draws", draws={"default": 5})
    assert list(vars(made.parse_args([]))) == ["seed", "draws"]
    assert settings_from(made.parse_args([]), Settings, table="b.csv") == Settings(table="b.csv", draws=5)


def test_the_help_has_the_defaults_and_the_options_of_other_settings():
    @dataclass(frozen=True)
    class Limits:
        share: float = setting(0.5, "share of `train_rows`")
        names: Sequence[str] = setting(("a", "b"), "names", separator=",")
        seed: int = setting(0, "seed (default: that of the run)")
        keep: bool = setting(False, "keep all")

    made = CommandParser(prog="test", description="Test.")
    add_settings(made, Limits)
    helps = {action.dest: action.help for action in made._actions[1:]}
    assert helps == {
        "share": "share of --train-rows (default: 0.5)",
        "names": "names (default: a,b)",
        "seed": "seed (default: that of the run)",
        "keep": "keep all",
    }


def test_with_options_translates_the_settings_of_a_command():
    text = "`batch_size` and `trust_remote_code`; `labeler=rules:ct_rate`"
    expected = "--batch-size and `trust_remote_code`; --labeler rules:ct_rate"
    assert with_options(text, ["--batch-size", "--labeler"]) == expected


def test_add_settings_repeats_a_sequence_with_a_default():
    @dataclass(frozen=True)
    class Kept:
        keep: Sequence[str] = setting((), "columns")

    made = argparse.ArgumentParser()
    add_settings(made, Kept)
    assert settings_from(made.parse_args(["--keep", "a", "--keep", "b"]), Kept).keep == ["a", "b"]
    assert settings_from(made.parse_args([]), Kept).keep == []


def test_add_shared_options_takes_names_and_changes():
    made = argparse.ArgumentParser()
    add_shared_options(made, "batch_size", "output", "overwrite", seed={"default": 7})
    assert vars(made.parse_args([])) == {"batch_size": 256, "output": "-", "overwrite": False, "seed": 7}


def test_outputs_must_be_different_files(tmp_path):
    one = str(tmp_path / "a.json")
    with pytest.raises(UsageError, match="--output and --json must differ"):
        Outputs(one, one).check()
    with pytest.raises(UsageError, match="argument --latex: must be a file of its own, got '-'"):
        Outputs(one).check(latex="-")
    with pytest.raises(UsageError, match="--latex and --html must differ"):
        Outputs(one).check(latex=str(tmp_path / "b"), html=str(tmp_path / "b"))


def test_outputs_mark_formulas_if_asked(tmp_path):
    Outputs(str(tmp_path / "a.csv"), spreadsheet_safe=True).write(Table({"report": ["=1+1"]}), {})
    assert (tmp_path / "a.csv").read_text() == "report\n'=1+1\n"


def test_outputs_that_are_links_to_one_file_are_refused(tmp_path):
    one, soft, hard, missing = (tmp_path / name for name in ("a.json", "soft", "hard", "missing"))
    soft.symlink_to(one)
    missing.symlink_to(tmp_path / "b.json")
    for json, other in [(one, soft), (one, f"{tmp_path}/./a.json"), (tmp_path / "b.json", missing)]:
        with pytest.raises(UsageError, match=r"--json and --html must differ, got .* which are one file"):
            Outputs(None, str(json), overwrite=True).check(html=str(other))
    one.touch()
    hard.hardlink_to(one)
    with pytest.raises(UsageError, match=r"--json and --html must differ, got .* which are one file"):
        Outputs(None, str(one), overwrite=True).check(html=str(hard))


def test_outputs_are_not_replaced_unless_asked(tmp_path):
    path = tmp_path / "a.json"
    path.touch()
    with pytest.raises(TableError, match="exists"):
        Outputs(None, str(path)).check()
    Outputs(None, str(path), overwrite=True).check()


def test_outputs_that_are_appended_to_are_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.touch()
    Outputs(str(path), is_appended=True).check()
    with pytest.raises(UsageError, match="argument --output: must be a file of JSON lines"):
        Outputs(str(tmp_path / "a.csv"), is_appended=True).check()


def test_outputs_write_the_table_though_the_summary_cannot_be_written(tmp_path):
    outputs = Outputs(str(tmp_path / "out.csv"), str(tmp_path / "none" / "summary.json"))
    with pytest.raises((OSError, TableError)):
        outputs.write(Table({"a": ["1"]}), {})
    assert read_table(outputs.output).columns == {"a": ["1"]}


@pytest.mark.parametrize(("output", "json", "hides"), [("-", None, True), (None, "-", True), ("a.csv", None, False)])
def test_outputs_hide_results_if_standard_output_has_data(output, json, hides):
    assert Outputs(output, json).hides_results is hides


@pytest.mark.parametrize("options", [{"with_text": True}, {"id_column": "id"}])
def test_page_options_need_a_page(options):
    with pytest.raises(SettingError) as raised:
        PageOptions(**options)
    assert [raised.value.setting] == [*options]
    assert PageOptions(html="page.html", **options).html == "page.html"


def _parsers(parser, name):
    """The parser of a command and those of its parts."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part, own in action.choices.items():
                yield from _parsers(own, f"{name} {part}")


def _number_options():
    for command in COMMANDS:
        (choices,) = (one.choices for one in _parser(command)._actions if isinstance(one, argparse._SubParsersAction))
        for name, parser in _parsers(choices[command], command):
            for action in parser._actions:
                if "_number_reader" in getattr(action.type, "__qualname__", ""):
                    yield pytest.param(parser, action, id=f"{name} {action.option_strings[0]}")


@pytest.mark.parametrize(("parser", "action"), _number_options())
def test_number_options_of_every_command_have_a_range(parser, action):
    accepted, errors = [], []
    for text in ("0", "-1", "1" + "0" * 20, "-1e30", "nan", "inf", "1e400", "text", "", "1" * 5000):
        try:
            accepted.append(parser._get_value(action, text))
        except argparse.ArgumentError as error:
            errors.append(str(error))
    assert set(accepted) <= {0, -1}
    # Each names the option and what is wrong with its value.
    assert all(error.startswith(f"argument {action.option_strings[0]}: must be a") for error in errors)
    assert all("\n" not in error and len(error) < 400 for error in errors)


@pytest.mark.parametrize(
    ("option", "value"), [("--workers", 9999), ("--bootstrap", 10**9), ("--seed", 10**20), ("--permutations", 10**12)]
)
def test_numbers_that_no_run_would_end_with_name_the_largest(option, value):
    found = [one.values for one in _number_options() if one.values[1].option_strings == [option]]
    assert len(found) >= 2
    for parser, action in found:
        with pytest.raises(argparse.ArgumentError, match=rf"argument {option}: .* at most [\d,]+, got {value}"):
            parser._get_value(action, str(value))
