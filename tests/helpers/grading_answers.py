"""Answers of a judge that writes graded reports, and the requests that it receives."""

import json
import re

_REFERENCE = re.compile(r"<reference_report>\n\[\w+\] (\".*\") \[/\w+\]\n</reference_report>")
_WANTED = re.compile(r"candidate number (\d+) of this quality: .* so that its total is (.*)\.")


def asked_report(messages):
    """Return the request of a conversation: ``"reference | tier | draw"``."""
    content = messages[-1]["content"]
    draw, tier = _WANTED.search(content).groups()
    return f"{json.loads(_REFERENCE.search(content)[1])} | {tier} | {draw}"


def graded(system, report, **scores):
    """Return an answer; sub-scores that are not named are 0."""
    return json.dumps({"report": report, "scores": {**dict.fromkeys(system.names, 0), **scores}})


def honest(system, item):
    """Return an answer in the requested tier, with as many false findings as its best total allows."""
    reference, tier, draw = item.split(" | ")
    errors = -int(float(tier.split(" to ")[-1]))
    said = " ".join(f"Nodule {number}." for number in range(errors))
    return graded(system, f"In other words: {reference} {said} ({draw})", false_finding=errors)
