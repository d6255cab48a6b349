"""BLEU, ROUGE-L, CIDEr and METEOR of the VLM3D challenge: pycocoevalcap, called as the official script does."""

import json
import pickle
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from caption_texts import PREDS, TARGET
from hypothesis import given, settings
from hypothesis import strategies as st

from rrg_rewards.metrics import CIDEr, CocoBLEU, CocoMETEOR, CocoROUGE, make_metric
from rrg_rewards.metrics.coco import MeteorJar, prepare_texts

needs_library = pytest.mark.skipif(find_spec("pycocoevalcap") is None, reason="needs pycocoevalcap (extra coco)")
needs_java = pytest.mark.skipif(
    find_spec("pycocoevalcap") is None or shutil.which("java") is None, reason="needs pycocoevalcap and Java"
)


def official_texts(preds: Sequence[str], target: Sequence[str]) -> tuple[dict[int, Any], dict[int, Any]]:
    """The two mappings that the official script makes of the files of predictions and references."""

    def shorter(text: str) -> str:
        return text.replace(" . ", ".").replace(" .", ".")

    gts = {row: [shorter(text.replace("\n", ""))] for row, text in enumerate(target)}
    cleaned = [text.replace("\n", "").replace("<|eot_id|>", "").replace('"', "").replace("_", "") for text in preds]
    return gts, {row: [shorter(text)] for row, text in enumerate(cleaned)}


def official(preds: Sequence[str], target: Sequence[str], with_meteor: bool = False) -> dict[str, Any]:
    """Corpus value and values of reports, with the scorers and in the order of the official script."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    gts, res = official_texts(preds, target)
    found: dict[str, Any] = {
        "bleu": Bleu(4).compute_score(gts, res, verbose=0),
        "rouge": Rouge().compute_score(gts, res),
        "cider": Cider().compute_score(gts, res),
    }
    if with_meteor:
        from pycocoevalcap.meteor.meteor import Meteor

        found["meteor"] = Meteor().compute_score(gts, res)
    return found


def check(preds: Sequence[str], target: Sequence[str], expected: dict[str, Any]) -> None:
    for n_gram in (1, 2, 3, 4):
        metric = CocoBLEU(n_gram=n_gram)
        scores = metric.score(preds, target)
        metric.add_scores(scores)
        assert float(metric.compute()) == pytest.approx(expected["bleu"][0][n_gram - 1], rel=1e-9, abs=1e-12)
        assert scores.value.tolist() == pytest.approx(expected["bleu"][1][n_gram - 1], rel=1e-9, abs=1e-12)
    assert float(metric.statistics()["bleu_mean"]) == pytest.approx(sum(expected["bleu"][0]) / 4, rel=1e-9)
    for name, other in (("rouge", CocoROUGE()), ("cider", CIDEr())):
        scores = other.score(preds, target)
        other.add_scores(scores)
        assert scores.value.tolist() == pytest.approx(expected[name][1].tolist(), rel=1e-9, abs=1e-12)
        assert float(other.compute()) == pytest.approx(float(expected[name][0]), rel=1e-9, abs=1e-12)


@needs_library
def test_coco_metrics_are_those_of_the_official_script() -> None:
    check(PREDS, TARGET, official(PREDS, TARGET))


REPORT = st.lists(st.sampled_from(["no", "effusion", "left", "mass .", '"', "a_b", "\n", " ", "."]), max_size=9)


@needs_library
@settings(max_examples=60)
@given(st.lists(st.tuples(REPORT, REPORT), min_size=1, max_size=5))
def test_coco_metrics_of_any_texts_are_those_of_the_official_script(pairs: list[tuple[list[str], list[str]]]) -> None:
    preds, target = [" ".join(pred) for pred, _ in pairs], [" ".join(["x", *reference]) for _, reference in pairs]
    check(preds, target, official(preds, target))


@needs_library
def test_coco_metrics_of_real_reports_are_those_of_the_official_script(shared_data: Path) -> None:
    preds, target = real_pairs(shared_data)
    check(preds, target, official(preds, target))


@needs_java
@pytest.mark.slow
def test_coco_meteor_of_real_reports_is_that_of_the_official_script(shared_data: Path) -> None:
    preds, target = real_pairs(shared_data)
    # Equal texts are added up in another way.
    preds[3], preds[20] = target[3], target[20]
    expected, values = official(preds, target, with_meteor=True)["meteor"]
    metric = CocoMETEOR()
    scores = metric.score(preds, target)
    for part in (range(10), range(10, len(preds))):
        metric.add_scores(scores.take(torch.tensor(part)))
    assert scores.value.tolist() == pytest.approx(values, abs=1e-12)
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-12)
    assert float(scores.aggregate(*scores.sufficient_statistics)) == pytest.approx(expected, abs=1e-12)


def real_pairs(shared_data: Path, number: int = 60) -> tuple[list[str], list[str]]:
    """Reports of one study against those of the next one, and some against themselves with a word removed."""
    path = next(iter(sorted(shared_data.glob("iu_xray_rexrank/*.json"))))
    studies = list(json.loads(path.read_text()).values())
    studies = [one for one in studies if one.get("model_prediction") and one.get("section_findings")][:number]
    assert len(studies) == number
    target = [f"Findings: {one['section_findings']} Impression: {one['section_impression']}" for one in studies]
    return [one["model_prediction"] for one in studies], target


@needs_java
@pytest.mark.slow
def test_coco_meteor_is_that_of_the_official_script_and_shares_one_program() -> None:
    expected, values = official(PREDS, TARGET, with_meteor=True)["meteor"]
    metric = CocoMETEOR()
    scores = metric.score(PREDS, TARGET)
    assert scores.value.tolist() == pytest.approx(values, abs=1e-12)
    metric.add_scores(scores)
    metric.update([None], ["a"])
    equal = CocoMETEOR()
    equal.update(["Clear lungs.", "No mass."], ["Clear lungs.", "No mass."])
    assert float(equal.compute()) == 1
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-12)
    assert int(metric.num_unscorable) == 1
    copy = pickle.loads(pickle.dumps(metric))
    assert len(pickle.dumps(metric)) < 10_000
    assert float(copy.compute()) == pytest.approx(expected, abs=1e-12)
    assert metric.clone().jar is metric.jar
    # Line breaks and separators would end the text for the program.
    broken = CocoMETEOR(text="none").score(["a ||| b\r\nc", "a b c"], ["a\nb c", "a b c"])
    assert broken.value[0] == broken.value[1]


@needs_java
@pytest.mark.slow
def test_prepare_texts_has_the_tokens_of_pycocoevalcap() -> None:
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    texts = ["Small, left-sided effusion (2.5 cm).", "", "Clear.\nNo mass!"]
    expected = PTBTokenizer().tokenize({row: [{"caption": text}] for row, text in enumerate(texts)})
    found = prepare_texts(texts, "ptb", is_prediction=True)
    assert found == [expected[row][0] for row in range(3)]
    assert found[0] == "small left-sided effusion -lrb- 2.5 cm -rrb-"
    exact = CocoBLEU(n_gram=2, text="ptb").score(["Small, LEFT effusion."], ["small left effusion"])
    assert exact.value.tolist() == pytest.approx([1.0], abs=1e-8)


class RecordedMeteor:
    """Answers of METEOR 1.5 to the first three pairs."""

    STATISTICS = (
        "10.0 13.0 3.0 4.0 7.0 7.0 3.0 3.0" + " 0.0" * 12 + " 4.0 10.0 10.0",
        "3.0 3.0 1.0 1.0 2.0 2.0 1.0 1.0" + " 0.0" * 12 + " 1.0 3.0 3.0",
        "0.0 2.0 0.0 1.0" + " 0.0" * 19,
    )
    VALUES = (0.4010428652224717, 1.0, 0.0)
    TOTAL = "13.0 18.0 4.0 6.0 9.0 9.0 4.0 4.0" + " 0.0" * 12 + " 4.0 13.0 13.0"
    CORPUS = 0.40411715821408933

    def __init__(self) -> None:
        self.meteor_p = self.stdin = self.stdout = self
        self.answers: list[str] = []
        self.lines: list[str] = []

    def write(self, content: bytes) -> None:
        line = content.decode().rstrip("\n")
        self.lines.append(line)
        if line.startswith("SCORE"):
            self.answers.append(self.STATISTICS[sum(one.startswith("SCORE") for one in self.lines) - 1])
        else:
            known = {**dict(zip(self.STATISTICS, self.VALUES, strict=True)), self.TOTAL: self.CORPUS}
            self.answers += [str(known[line.removeprefix("EVAL ||| ")])] * 2

    def flush(self) -> None:
        pass

    def readline(self) -> bytes:
        return f"{self.answers.pop(0)}\n".encode() if self.answers else b""


def test_coco_meteor_sums_the_statistics_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    program = RecordedMeteor()
    module = type("Module", (), {"Meteor": lambda: program})
    monkeypatch.setattr("rrg_rewards.metrics.coco.require", lambda *_, **__: module)
    metric = CocoMETEOR()
    scores = metric.score([*PREDS[:3], None], [*TARGET[:3], "a"])
    assert scores.value.nan_to_num(-1).tolist() == [*RecordedMeteor.VALUES, -1]
    assert program.lines[0] == (
        "SCORE ||| Findings: Small left pleural effusion.No mass.The heart is of normal size. ||| "
        "Findings: Small left effusion.No mass.The heart is normal."
    )
    metric.add_scores(scores)
    assert float(metric.compute()) == RecordedMeteor.CORPUS, "the chunk of equal texts does not count"
    assert float(scores.aggregate(*scores.sufficient_statistics)) == RecordedMeteor.CORPUS
    program.answers, program.write = [], lambda _: None  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="METEOR's program ended"):
        metric.score(["a"], ["a"])

    def closed(_: bytes) -> None:
        raise BrokenPipeError

    program.write = closed  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="METEOR's program ended"):
        metric.score(["a"], ["a"])
    program = RecordedMeteor()
    assert metric.score(PREDS[:1], TARGET[:1]).value.tolist() == [RecordedMeteor.VALUES[0]], "it starts again"


def test_coco_meteor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = CocoMETEOR()
    for module_name in ("pycocoevalcap", "pycocoevalcap.meteor", "pycocoevalcap.meteor.meteor"):
        monkeypatch.setitem(sys.modules, module_name, None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[coco\]"):
        metric.score(["a"], ["a"])

    class NoJava:
        def __init__(self) -> None:
            raise FileNotFoundError("java")

    jar = MeteorJar()
    module = type("Module", (), {"Meteor": NoJava})
    monkeypatch.setattr("rrg_rewards.metrics.coco.require", lambda *_, **__: module)
    with pytest.raises(FileNotFoundError, match=r"there is no Java, which METEOR .* need"):
        jar.statistics(["a"], ["a"])


@pytest.mark.parametrize("name", ["coco_bleu", "coco_rouge", "cider"])
def test_coco_metrics_count_missing_reports(name: str) -> None:
    metric = make_metric(name)
    metric.update([None, *PREDS[:2], "a"], ["x", *TARGET[:2], " "])
    other = make_metric(name)
    other.update(PREDS[:2], TARGET[:2])
    assert (metric.compute(), int(metric.num_unscorable)) == (other.compute(), 2)
    metric.reset()
    metric.update([None], ["a"])
    with pytest.warns(UserWarning, match=f"{name} is NaN, because none of 1 report pairs could be scored"):
        assert metric.compute().isnan()


def test_coco_bleu_resamples_counts() -> None:
    scores = CocoBLEU(n_gram=1).score([*PREDS, None], [*TARGET, "a"])
    assert len(scores.sufficient_statistics[0]) == len(PREDS)
    weights = torch.tensor([[1] * 6, [2, 0, 1, 0, 3, 0]])
    rows = torch.tensor([0, 0, 2, 4, 4, 4])
    again = scores.take(rows)
    expected = [scores.aggregate(*scores.sufficient_statistics), again.aggregate(*again.sufficient_statistics)]
    found = scores.aggregate_weighted(weights, *scores.sufficient_statistics)
    assert found.tolist() == pytest.approx([float(one) for one in expected])


def test_coco_metrics_reject_wrong_settings() -> None:
    with pytest.raises(ValueError, match="n_gram must be 1, 2, 3, 4 or 'mean', got 5"):
        CocoBLEU(n_gram=5)
    with pytest.raises(ValueError, match="text must be one of vlm3d, ptb, none, got 'nltk'"):
        CocoROUGE(text="nltk")
    assert prepare_texts(['a "b" _ .\n'], "none", is_prediction=True) == ['a "b" _ .\n']
    assert prepare_texts(['a "b" _ .\n'], "vlm3d", is_prediction=False) == ['a "b" _.']
