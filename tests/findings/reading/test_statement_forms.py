"""Statements of every form assert, deny or doubt the findings that they name, whatever the finding."""

from itertools import product
from pathlib import Path

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.utilities.yaml_files import read_user_yaml

FORMS = read_user_yaml(Path(__file__).with_name("statement_forms.yaml"))
NAMES = [(name, kind) for kind, names in FORMS["findings"].items() for name in names]
# Every template is tried with each third finding; which of them depends on the place of the template.
STEP = 3


def filled(template: str, name: str, kind: str) -> str:
    article = ("an " if name[0] in "aeiou" else "a ") if kind == "countable" else ""
    verbs = ("are", "have", "were", "do") if kind == "plural" else ("is", "has", "was", "does")
    agreeing = dict(zip(("is", "has", "was", "does"), verbs, strict=True))
    text = template.format(x=name, a_x=article + name, **agreeing)
    return text[0].upper() + text[1:]


def stated(sentence: str, name: str) -> list[str]:
    concepts = {found.concept for found in extract_findings(f"There is {name}.")}
    assert concepts, name
    return [
        "doubted" if found.presence == "present" and found.certainty else found.presence
        for found in extract_findings(sentence, open_findings=True)
        if found.concept in concepts
    ]


CASES = [(status, form) for status in ("absent", "present", "uncertain") for form in FORMS[status]]


@pytest.mark.parametrize(("status", "form"), CASES)
def test_presence_in_statements_of_each_form(status, form):
    wrong = []
    for place, template in enumerate(FORMS[status][form]):
        for name, kind in NAMES[place % STEP :: STEP]:
            sentence = filled(template, name, kind)
            said = set(stated(sentence, name))
            if status == "absent":
                is_right = said <= {"absent"}
            elif status == "present":
                is_right = bool(said & {"present", "doubted"}) and "absent" not in said
            else:
                is_right = bool(said) and said <= {"uncertain", "doubted"}
            if not is_right:
                wrong.append((sentence, sorted(said)))
    assert wrong == []


@pytest.mark.parametrize("form", FORMS["uncertain"])
def test_abnormal_findings_count_what_is_possible_and_not_what_is_unlikely(form):
    for place, template in enumerate(FORMS["uncertain"][form]):
        name, kind = NAMES[place % len(NAMES)]
        sentence = filled(template, name, kind)
        found = abnormal_findings(sentence, extract_findings(sentence))
        assert bool(found) is (form != "unlikely" or "less likely" in sentence), sentence


CLAUSES = [(presence, clause) for presence, clauses in FORMS["clauses"].items() for clause in clauses]
PAIRS = [("pleural effusion", "consolidation"), ("pneumothorax", "atelectasis")]


@pytest.mark.parametrize("link", FORMS["links"])
def test_joined_statements_keep_their_presence(link):
    wrong = []
    for (first, before), (second, after) in product(CLAUSES, repeat=2):
        if "and" in link and after.split()[0] not in FORMS["beginnings"]:
            continue
        for names in PAIRS:
            sentence = before.format(x=names[0]) + link + after.format(x=names[1]) + "."
            for name, presence in zip(names, (first, second), strict=True):
                said = {"uncertain" if status == "doubted" else status for status in stated(sentence, name)}
                if said != {presence}:
                    wrong.append((sentence, name, sorted(said)))
    assert wrong == []
