"""The lexicon files fit the engine and the label schemas, and wrong entries of files of users are named."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.engine import get_engine
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.schemas import CHEXBERT, CT_RATE
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("chest_ct", CT_RATE.labels),
        ("chest_xray", tuple(label for label in CHEXBERT.labels if label != "No Finding")),
    ],
)
def test_lexicon_labels_are_those_of_the_schema(name, labels):
    lexicon = load_lexicon(name)
    assert tuple(lexicon.labels) == labels
    assert {concept for members in lexicon.labels.values() for concept in members} <= set(lexicon.concepts)


@pytest.mark.parametrize("name", ["chest_ct", "chest_xray"])
def test_lexicon_rules_are_ranked_by_concept_and_every_concept_has_one(name):
    lexicon = load_lexicon(name)
    rules = lexicon.rules.phrases
    concepts = [rule.meaning for rule in rules]
    assert concepts == sorted(concepts)
    assert set(concepts) == set(range(len(lexicon.concepts)))


@pytest.mark.parametrize("name", ["chest_ct", "chest_xray"])
def test_lexicon_digest_is_short_and_stable(name):
    assert re.fullmatch("[0-9a-f]{8}", load_lexicon(name).digest)


OWN = """
extends: chest_ct
groups: {azygos: azygos azygous}
concepts:
  azygos_lobe: ["{azygos} lobe|fissure"]
  stent: [{phrase: stent|stents, at: [coronary, heart], without: [biliary]}]
labels: {Azygos lobe: [azygos_lobe], Coronary stent: [stent], Hiatal hernia: [hiatal_hernia]}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "my_lexicon.yaml"
    path.write_text(OWN)
    return path


@pytest.mark.parametrize("name", ["chest", "chest_ct", "chest_xray", "abdomen"])
def test_lexicon_files_of_the_package_are_in_the_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_bytes(files("rrg_rewards.findings.lexicon").joinpath(f"{name}.yaml").read_bytes())
    theirs, ours = load_lexicon(name), load_lexicon(path)
    assert (ours.name, ours.labels) == (name, theirs.labels)
    # Those of knowledge/concepts.yaml come last.
    assert ours.concepts == theirs.concepts[: len(ours.concepts)]


LEXICONS = ["chest", "chest_ct", "chest_xray", "abdomen"]


@pytest.mark.parametrize("name", LEXICONS)
def test_lexicon_words_are_read_in_british_spelling_and_in_the_plural(name: str) -> None:
    words = load_lexicon(name).vocabulary
    known = {*words.exact, *words.stems}
    for word in known:
        for other, ours in load_knowledge("spellings")["parts"].items():
            if ours in word and other not in word:
                assert words[word] & ~words[word.replace(ours, other)] == 0, (word, other)
        if word.isalpha() and len(word) > 2:
            assert words[f"{word}s"], word


def test_lexicon_words_are_read_in_two_parts() -> None:
    lexicon = load_lexicon("chest")
    prefixes = tuple(load_knowledge("spellings")["prefixes"])
    words = [
        word
        for word in lexicon.vocabulary.exact
        if word.startswith(prefixes) and lexicon.vocabulary[word] & lexicon.firsts
    ]
    differing = {}
    for word in words:
        prefix = max((prefix for prefix in prefixes if word.startswith(prefix)), key=len)
        rest = word.removeprefix(prefix)
        if len(rest) >= 4:
            texts = (word, f"{prefix}-{rest}")
            whole, parts = ({one.concept for one in extract_findings(text)} for text in texts)
            if whole - parts:
                differing[word] = whole, parts
    assert len(words) > 20
    assert differing == {}


@pytest.mark.parametrize("name", LEXICONS)
def test_lexicon_shared_names_are_read_in_every_lexicon(name: str) -> None:
    concepts = load_lexicon(name).concepts
    shared = {concept: entry.get("shared", ()) for concept, entry in load_knowledge("concepts")["concepts"].items()}
    texts = [
        (word.rstrip("*"), concept)
        for concept, phrases in shared.items()
        if concept in concepts
        for phrase in phrases
        for word in phrase.split("|")
    ]
    assert len(texts) > 10
    unread = [text for text, concept in texts if concept not in {f.concept for f in extract_findings(text, name)}]
    assert unread == []


def test_lexicon_file_adds_to_a_lexicon_and_replaces_its_labels(path: Path) -> None:
    lexicon = load_lexicon(path)
    assert tuple(lexicon.labels) == ("Azygos lobe", "Coronary stent", "Hiatal hernia")
    found = extract_findings("Azygous fissure. No stent in the LAD. Emphysema.", path)
    assert [(one.concept, one.presence) for one in found] == [
        ("azygos_lobe", "present"),
        ("medical_material", "absent"),
        ("stent", "absent"),
        ("emphysema", "present"),
    ]


def test_lexicon_edited_file_is_read_anew(path: Path) -> None:
    before = get_engine(path)
    assert get_engine(path) is before
    path.write_text(OWN.replace("azygos azygous", "azygos"))
    assert get_engine(path).lexicon.digest != before.lexicon.digest
    assert extract_findings("Azygous fissure.", path) == []


WRONG = TABLES["wrong"]


@pytest.mark.parametrize("content", WRONG)
def test_lexicon_wrong_entry_is_named_with_the_file_and_the_remedy(content: str, path: Path) -> None:
    path.write_text(content)
    with pytest.raises(ValueError, match=WRONG[content]) as caught:
        load_lexicon(path)
    assert str(caught.value).startswith(str(path))


def test_lexicon_missing_file_is_named_with_a_similar_one(path: Path) -> None:
    wanted = path.with_name("my_lexikon.yaml")
    with pytest.raises(FileNotFoundError, match=re.escape(f"{wanted}: no such file; did you mean {path}?")):
        load_lexicon(wanted)
