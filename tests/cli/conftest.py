"""A labeler that needs no lexicon, and the command line as a function."""

import csv
import io
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from rrg_rewards.cli.main import main
from rrg_rewards.schemas import get_label_schema


class WordLabeler:
    """Finds a label if the text contains its name without "no" before it."""

    calls: list[int]

    def __init__(self, schema):
        if schema not in ("ct_rate", "chexbert"):
            raise ValueError(f"label schema {schema!r} has no rules")
        self.labels = get_label_schema(schema).labels
        self.signature = f"words|schema:{schema}"

    def __call__(self, reports):
        type(self).calls.append(len(reports))
        rows = [
            [label.lower() in text.lower() and f"no {label.lower()}" not in text.lower() for label in self.labels]
            for text in reports
        ]
        return torch.tensor(rows, dtype=torch.bool).view(-1, len(self.labels))


@pytest.fixture
def words(monkeypatch):
    """Replace the rule labeler by the word labeler."""
    labeler = type("WordLabeler", (WordLabeler,), {"calls": []})
    module = ModuleType("rrg_rewards.labelers.rules")
    module.RuleLabeler = labeler
    monkeypatch.setitem(sys.modules, "rrg_rewards.labelers.rules", module)
    return labeler


@pytest.fixture
def run(capsysbinary):
    """Run the command line: exit code, standard output, standard error."""

    def run_main(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return SimpleNamespace(code=code, out=captured.out.decode(), err=captured.err.decode())

    return run_main


@pytest.fixture
def write_csv(tmp_path):
    """Write a CSV table: name, header, rows."""

    def write(name, header, *rows):
        path = tmp_path / name
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        return path

    return write


@pytest.fixture
def give_input(monkeypatch):
    """Return a function that puts bytes on standard input."""
    return lambda data: monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
