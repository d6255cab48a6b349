"""Answers of a judge that counts errors, and the pairs that it receives."""

import json
import re

_TAGGED = re.compile(r"<(reference|candidate)_report>\n\[\w+\] (\".*\") \[/\w+\]\n</\1_report>")


def asked_pair(messages):
    """Return the pair of a conversation: ``"reference | candidate"``."""
    return " | ".join(json.loads(text) for _, text in _TAGGED.findall(messages[-1]["content"]))


def counts_of(pair):
    """Return an answer that calls the whole reference omitted and the whole candidate false, unless it is normal."""
    reference, candidate = pair.split(" | ")
    errors = [
        {
            "explanation": "Only in one report.",
            "category": category,
            "significant": category == "false_finding",
            "reference_quote": text if category == "omitted_finding" else None,
            "candidate_quote": text if category == "false_finding" else None,
        }
        for category, text in (("omitted_finding", reference), ("false_finding", candidate))
        if text != "Normal chest."
    ]
    return json.dumps({"matched_findings": [], "errors": errors})
