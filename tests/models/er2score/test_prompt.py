import pytest
import torch
from tiny_crepe import random_pairs
from tiny_er2score import plain_prompt, tiny_llama_tokenizer
from tiny_policy import tiny_tokenizer

from rrg_rewards.models.er2score.prompt import PromptEncoder, PromptTemplate, default_prompt
from rrg_rewards.schemas import get_scoring_system

TEMPLATE = PromptTemplate(default_prompt())


@pytest.fixture(scope="module")
def encoder():
    return PromptEncoder(tiny_llama_tokenizer(), TEMPLATE, 1024)


def test_the_packages_prompt_holds_both_reports_and_ends_in_a_word():
    assert not default_prompt().endswith(("\n", " "))
    assert "{criteria}" not in default_prompt()
    # Part of every signature: a changed text needs a changed line here and an entry in the change log.
    assert TEMPLATE.hash == "e79a3977"


def test_prompt_encoder_tokens_are_those_of_the_text_in_pieces(encoder):
    candidates, references = random_pairs(20)
    for prompt, reference, candidate in zip(encoder(references, candidates), references, candidates, strict=True):
        assert [*prompt.prefix, *prompt.suffix] == plain_prompt(reference, candidate)
        assert prompt.num_cut == 0


def test_prompt_encoder_candidates_of_a_reference_share_all_but_themselves(encoder):
    first, second = encoder(["a mass"] * 2, ["no mass", ""])

    assert first.prefix == second.prefix
    assert first.suffix[-len(second.suffix) :] == second.suffix
    assert len(second.suffix) >= 1, "the words after the candidate"


@pytest.mark.parametrize(
    "report",
    [
        "{candidate} {reference} {criteria} {} {0}",
        "<|end|> <|begin|>",
        "\x00 é 肺 \u202e",
        "Assessment:\n\n",
        "a" * 500,
    ],
)
def test_no_report_breaks_the_prompt(encoder, report):
    tokenizer = tiny_llama_tokenizer()
    as_reference, as_candidate = encoder([report, "a mass"], ["a mass", report])

    words = plain_prompt("", "")
    ids = [*as_candidate.prefix, *as_candidate.suffix]
    assert len(set(ids) & {1}) == 0, "no special token out of a report"
    assert ids.count(0) == [*as_reference.prefix].count(0) == 1
    written = tokenizer.decode(as_candidate.suffix)
    assert written.startswith(report)
    assert tokenizer.decode(as_reference.prefix).count(report) == 1
    assert as_candidate.suffix[-1] == words[-1]


def test_special_tokens_of_the_template_are_the_backbones_own():
    template = PromptTemplate("<|begin|>user {reference}<|end|>{candidate}<|end|>")
    (prompt,) = PromptEncoder(tiny_llama_tokenizer(), template, 100)(["<|end|>"], ["<|end|>"])

    assert prompt.prefix.count(0) == 1
    assert prompt.prefix.count(1) == 1
    assert prompt.prefix[-1] == 1
    assert prompt.suffix.count(1) == 1


def test_prompt_encoder_a_tokenizer_that_puts_nothing_first_gets_nothing_first():
    (prompt,) = PromptEncoder(tiny_tokenizer(), PromptTemplate("report {reference} {candidate} heart"), 50)(
        ["edema"], ["nodule"]
    )
    assert tiny_tokenizer().decode([*prompt.prefix, *prompt.suffix]) == "report edema nodule heart"


@pytest.mark.parametrize(
    ("reference", "candidate", "kept"),
    [(10, 10, (10, 10)), (400, 10, (50, 10)), (10, 400, (10, 50)), (400, 400, (30, 30)), (31, 400, (30, 30))],
)
def test_prompt_encoder_long_reports_are_cut_each_to_its_share_and_the_words_stay(reference, candidate, kept):
    tokenizer = tiny_llama_tokenizer()
    fixed = len(plain_prompt("", ""))
    encoder = PromptEncoder(tokenizer, TEMPLATE, fixed + 60)
    # Each is one token.
    (prompt,) = encoder(["\x01" * reference], ["\x02" * candidate])

    ids = [*prompt.prefix, *prompt.suffix]
    first, second = (tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in ("\x01", "\x02"))
    assert (ids.count(first), ids.count(second)) == kept
    assert prompt.num_cut == reference + candidate - sum(kept)
    assert [token for token in ids if token not in (first, second)] == plain_prompt("", "")


def test_prompt_encoder_batches_in_one_piece_and_by_prefixes_hold_the_same_tokens(encoder):
    references = ["a mass", "no mass is new", "a mass", "edema"]
    prompts = encoder(references, ["edema", "a", "small nodule in the left lung", ""])

    whole, shared = encoder.collate(prompts), encoder.collate_shared(prompts)

    assert len(shared["prefix_ids"]) == 3
    assert shared["owner"].tolist() == [0, 1, 0, 2]
    for row, prompt in enumerate(prompts):
        owner = shared["owner"][row]
        prefix = shared["prefix_ids"][owner][shared["prefix_mask"][owner].bool()]
        suffix = shared["suffix_ids"][row][shared["suffix_mask"][row].bool()]
        assert (tuple(prefix.tolist()), tuple(suffix.tolist())) == (prompt.prefix, prompt.suffix)
        assert torch.equal(whole["input_ids"][row][whole["attention_mask"][row].bool()], torch.cat([prefix, suffix]))
    assert shared["prefix_mask"][:, -1].all()
    assert shared["suffix_mask"][:, 0].all()
    assert whole["attention_mask"][:, 0].all()


def test_criteria_stand_where_the_template_has_a_place_for_them():
    template = PromptTemplate("By:\n{criteria}\nIn {braces}: {reference} {candidate} So:")
    written = template.with_criteria(get_scoring_system("mrscore"))

    assert written.before_reference.count("\n- ") == 7
    assert "- grammar: Does the candidate report have errors of spelling or grammar?" in written.before_reference
    assert written.before_reference.endswith("In {braces}: ")
    assert TEMPLATE.with_criteria(get_scoring_system("mrscore")) == TEMPLATE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{candidate} So:", "must contain {reference} once, but contains it 0 times"),
        ("{reference} {candidate} {candidate} So:", "must contain {candidate} once, but contains it 2 times"),
        ("{candidate} {reference} So:", "must contain {reference} before {candidate}"),
        ("{reference} {criteria} {candidate} So:", "must contain {criteria} before {reference}"),
        ("{reference} {candidate}\n", "must have words after {candidate}"),
    ],
)
def test_templates_that_do_not_do_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        PromptTemplate(text)


def test_prompt_encoder_settings_without_a_meaning_are_refused(encoder):
    fixed = len(plain_prompt("", ""))
    with pytest.raises(ValueError, match=f"max_length {fixed + 1} leaves no room for two reports next to the words"):
        PromptEncoder(tiny_llama_tokenizer(), TEMPLATE, fixed + 1)
    with pytest.raises(ValueError, match="object must be a fast tokenizer"):
        PromptEncoder(object(), TEMPLATE, 100)
    with pytest.raises(ValueError, match="references and candidates must have the same length, got 1 and 2"):
        encoder(["a"], ["a", "b"])


def test_prompt_encoder_the_tokenizer_stays_as_it_was():
    tokenizer = tiny_llama_tokenizer()
    before = tokenizer.backend_tokenizer.to_str()
    PromptEncoder(tokenizer, TEMPLATE, 1024)(["a <|end|>"], ["b"])
    assert tokenizer.backend_tokenizer.to_str() == before
    assert not tokenizer.backend_tokenizer.encode_special_tokens
