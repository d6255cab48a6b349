"""A task for judges with known right answers."""

import hashlib
import json

from rrg_rewards.judges.base import AnswerError, JudgeTask

OPENING, CLOSING = "<item>", "</item>"


def good_answer(item):
    """The only answer that counts for an item."""
    return json.dumps({"item": item, "length": len(item)})


def asked_item(messages):
    """The item of a conversation."""
    content = messages[-1]["content"]
    return content[content.index(OPENING) + len(OPENING) : content.rindex(CLOSING)]


class LengthTask(JudgeTask):
    """Requests the length of a text."""

    name = "length"

    def __init__(self, instructions="How long is the text?"):
        self.instructions = instructions
        self.parsed = []

    @property
    def prompt_hash(self):
        return hashlib.sha256(self.instructions.encode()).hexdigest()[:8]

    @property
    def schema(self):
        return {
            "type": "object",
            "properties": {"item": {"type": "string"}, "length": {"type": "integer"}},
            "required": ["item", "length"],
            "additionalProperties": False,
        }

    def messages(self, item):
        return [
            {"role": "system", "content": self.instructions},
            {"role": "user", "content": f"{OPENING}{item}{CLOSING}"},
        ]

    def parse(self, item, answer):
        self.parsed.append(item)
        try:
            fields = json.loads(answer)
            named, length = fields["item"], fields["length"]
        except (ValueError, KeyError, TypeError):
            raise AnswerError("malformed", "no JSON of the schema") from None
        if named != item or length != len(item):
            raise AnswerError("inconsistent", "the answer is about another text")
        return length
