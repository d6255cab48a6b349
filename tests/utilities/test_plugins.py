"""Metrics, rewards and labelers of other packages by name."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rrg_rewards.cli.main import main
from rrg_rewards.judges import get_judge
from rrg_rewards.labelers import get_labeler
from rrg_rewards.metrics import CRIMSON, CallableMetric, ReportCRG, available_metrics, make_metric
from rrg_rewards.rewards import available_rewards, make_reward
from rrg_rewards.utilities import plugins

CODE = """
from rrg_rewards.judges import RuleJudge
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.metrics import BLEU
from rrg_rewards.rewards import RepetitionPenalty

class Unigrams(BLEU):
    name = "unigrams"
    def __init__(self, **kwargs):
        super().__init__(n_gram=1, **kwargs)

class Repeats(RepetitionPenalty):
    pass

def words(predictions, references, scale=1.0):
    return [scale * len(text.split()) for text in predictions]

def labeler(schema="ct_rate"):
    return RuleLabeler(schema)

class Lenient(RuleJudge):
    def __init__(self, model="small", unread="normal"):
        super().__init__(unread)
        self.model = model
"""

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a package with entry points, of ``{name}_code``."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, points: str) -> None:
        (tmp_path / f"{name}_code.py").write_text(CODE)
        info = tmp_path / f"{name}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(points)
        (info / "top_level.txt").write_text(f"{name}_code\n")
        plugins._plugins.cache_clear()

    yield make
    plugins._plugins.cache_clear()
    for name in [name for name in sys.modules if name.endswith("_code")]:
        del sys.modules[name]


def test_registry_entry_points_are_names_and_are_imported_at_first_use(install: Install) -> None:
    install(
        "mine",
        "[rrg_rewards.metrics]\nunigrams = mine_code:Unigrams\nwords = mine_code:words\n"
        "[rrg_rewards.rewards]\nrepeats = mine_code:Repeats\n[rrg_rewards.labelers]\nmine = mine_code:labeler\n",
    )
    assert {"unigrams", "words"} <= {*available_metrics()}
    assert {"unigrams", "words", "repeats"} <= {*available_rewards()}
    assert "repeats" not in available_metrics()
    assert "mine_code" not in sys.modules
    assert float(make_metric("unigrams").score(["a b"], ["a c"]).value) == 0.5
    assert make_reward("words", scale=2)(completions=["a b"], reference=["a"]) == [4.0]
    assert make_reward("repeats").__name__ == "repetition"
    assert get_labeler("mine:chexbert").labels == get_labeler("rules:chexbert").labels
    assert len(get_labeler("mine").labels) == 18
    assert ReportCRG("mine").labels == ReportCRG("rules:ct_rate").labels


def test_registry_judge_of_an_entry_point_works_by_name(install: Install, tmp_path: Path) -> None:
    install("mine", "[rrg_rewards.judges]\nlenient = mine_code:Lenient\nlabeler = mine_code:labeler\n")
    assert CRIMSON("lenient").judge.model == "small"
    judges = [get_judge("lenient:large"), get_judge({"name": "lenient", "model": "large"})]
    (tmp_path / "judge.yaml").write_text("name: lenient\nmodel: large\n")
    judges += [get_judge(str(tmp_path / "judge.yaml")), get_judge("lenient:small", model="large")]
    assert [(type(judge).__name__, judge.model) for judge in judges] == [("Lenient", "large")] * 4
    assert make_reward("crimson", judge="lenient:large")(["Edema."], reference=["Edema."]) == [1.0]
    with pytest.raises(ValueError, match="did you mean 'lenient'"):
        get_judge("lenien")
    with pytest.raises(TypeError, match="unknown argument of the judge 'lenient' 'modell'"):
        get_judge("lenient", modell="large")
    with pytest.raises(TypeError, match=r"judge .labeler. must be a judge, .* got RuleLabeler"):
        get_judge("labeler")


def test_registry_unknown_name_lists_the_plugins(install: Install) -> None:
    install("mine", "[rrg_rewards.metrics]\nunigrams = mine_code:Unigrams\n")
    with pytest.raises(ValueError, match=r"unknown metric 'unigram'; did you mean 'unigrams'\?"):
        make_metric("unigram")
    with pytest.raises(ValueError, match=r"unknown reward 'unigram'; did you mean 'unigrams'\?"):
        make_reward("unigram")


@pytest.mark.parametrize(
    ("group", "make", "name"),
    [
        ("metrics", make_metric, "crg"),
        ("rewards", make_reward, "crg"),
        ("labelers", get_labeler, "rules:ct_rate"),
        ("judges", get_judge, "rules"),
    ],
)
def test_registry_name_of_an_own_object_is_refused(
    install: Install, group: str, make: Callable[[str], object], name: str
) -> None:
    own = name.partition(":")[0]
    install("mine", f"[rrg_rewards.{group}]\n{own} = mine_code:words\n")
    with pytest.raises(ValueError, match=rf"{group[:-1]} '{own}' of package mine \(mine_code:words\)"):
        make(name)
    assert make_metric("bleu").name == "bleu"


def test_registry_reward_with_the_name_of_a_metric_is_refused(install: Install) -> None:
    install("mine", "[rrg_rewards.rewards]\nbleu = mine_code:Repeats\n")
    with pytest.raises(ValueError, match=r"reward 'bleu' of package mine \(mine_code:Repeats\) has the name of one"):
        make_reward("bleu")


def test_registry_two_packages_with_one_name_are_refused(install: Install) -> None:
    for name in ("mine", "yours"):
        install(name, f"[rrg_rewards.metrics]\nwords = {name}_code:words\n")
    with pytest.raises(ValueError, match=r"'words' is an entry point of package (mine|yours) .* and of package"):
        make_metric("words")


@pytest.mark.parametrize("point", ["mine_code:missing", "no_such_module:words"])
def test_registry_plugin_that_cannot_be_imported_says_whose_it_is(install: Install, point: str) -> None:
    install("mine", f"[rrg_rewards.metrics]\nwords = {point}\n[rrg_rewards.labelers]\nbroken = {point}\n")
    with pytest.raises(
        ImportError, match=rf"metric 'words' of package mine \({point}\) cannot be imported: \w+Error: "
    ):
        make_metric("words")
    with pytest.raises(ImportError, match="labeler 'broken' of package mine"):
        get_labeler("broken")


def test_registry_broken_plugin_does_not_hide_the_other_metrics(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("mine", "[rrg_rewards.metrics]\nwords = mine_code:missing\n")
    assert main(["score", "--list"]) == 0
    shown = capsys.readouterr().out
    assert "error    metric 'words' of package mine" in " ".join(shown.split("\n"))
    assert "rouge" in shown


@pytest.mark.parametrize("name", ["metric", "reward", "function of a metric"])
def test_import_object_refuses_paths_if_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Undone after the test.
    monkeypatch.setenv(plugins.NO_PLUGINS_VARIABLE, "0")
    make = {"metric": make_metric, "reward": make_reward, "function of a metric": CallableMetric}[name]
    assert make("math:pow")
    plugins.refuse_paths()
    with pytest.raises(ValueError, match="'math:pow' is a path, which runs code of its own, and paths are refused"):
        make("math:pow")
    assert make_metric("crg", prior=0.2).prior == 0.2


def test_registry_module_that_fails_is_an_import_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_code.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match="metric 'failing_code:f': cannot import 'failing_code': ZeroDivisionError"):
        make_metric("failing_code:f")


def test_import_object_names_what_a_module_defines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_code.py").write_text("import json\nfrom collections import Counter\ndef words(p, r): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"unknown metric in own_code 'count'\. Known: words$"):
        make_metric("own_code:count")
    with pytest.raises(ValueError, match="did you mean 'ReportCRG'"):
        make_metric("rrg_rewards.metrics:ReportCRGG")
