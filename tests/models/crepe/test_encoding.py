import random

import pytest
from tiny_crepe import random_pairs, random_report, tiny_bert_tokenizer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import RobertaProcessing
from transformers import PreTrainedTokenizerFast

from rrg_rewards.models.crepe.encoding import PairEncoder

CLS, SEP = 2, 3


def roberta_tokenizer():
    backend = Tokenizer(WordLevel({"<s>": 0, "</s>": 1, "<pad>": 2, "a": 3, "b": 4, "<unk>": 5}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = RobertaProcessing(("</s>", 1), ("<s>", 0))
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", model_input_names=names)


def parts(sequence):
    """Tokens of the reference and of the candidate in a BERT sequence."""
    ids = list(sequence.input_ids)
    middle = ids.index(SEP)
    assert ids[0] == CLS
    assert ids[-1] == SEP
    return ids[1:middle], ids[middle + 1 : -1]


@pytest.mark.parametrize("make", [tiny_bert_tokenizer, roberta_tokenizer])
def test_pair_encoder_a_pair_that_fits_is_the_tokenizers_own(make):
    tokenizer = make()
    candidates, references = random_pairs(20)
    found = PairEncoder(tokenizer, 512)(references, candidates)

    for sequence, reference, candidate in zip(found, references, candidates, strict=True):
        expected = tokenizer(reference, candidate, truncation=True, max_length=512)
        assert list(sequence.input_ids) == expected["input_ids"]
        assert list(sequence.token_type_ids) == expected.get("token_type_ids", [0] * len(sequence))
        assert sequence.num_cut == 0


@pytest.mark.parametrize("max_length", [31, 64, 101])
def test_pair_encoder_a_pair_that_does_not_fit_is_cut_as_the_tokenizer_cuts_it(max_length):
    tokenizer = tiny_bert_tokenizer()
    candidates, references = random_pairs(60, seed=4, longest=90)
    found = PairEncoder(tokenizer, max_length)(references, candidates)

    for sequence, reference, candidate in zip(found, references, candidates, strict=True):
        expected = tokenizer(reference, candidate, truncation=True, max_length=max_length)
        assert list(sequence.input_ids) == expected["input_ids"]
    assert sum(sequence.num_cut > 0 for sequence in found) > 30


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (100, 100, (48, 49)),  # equal lengths: half each
        (100, 10, (87, 10)),  # the reference uses the rest of the candidate's half
        (10, 100, (10, 87)),
        (49, 100, (48, 49)),
        (100, 48, (49, 48)),
        (100, 49, (49, 48)),
        (97, 0, (97, 0)),
        (0, 300, (0, 97)),
        (50, 47, (50, 47)),
    ],
)
def test_pair_encoder_over_the_limit_each_report_keeps_its_share(first, second, kept):
    encoder = PairEncoder(tiny_bert_tokenizer(), 100)
    # Words of one token each, so that positions show which were kept.
    words = [[("heart", "lung", "mass")[index % 3] for index in range(length)] for length in (first, second)]
    (sequence,) = encoder([" ".join(words[0])], [" ".join(words[1])])

    found = parts(sequence)
    assert tuple(map(len, found)) == kept
    assert sequence.num_cut == first + second - sum(kept)
    whole = [PairEncoder(tiny_bert_tokenizer(), 512)([" ".join(side)], [""])[0] for side in words]
    for part, side in zip(found, whole, strict=True):
        assert part == parts(side)[0][: len(part)]


def test_pair_encoder_a_cut_pair_does_not_cut_its_report_in_other_pairs():
    encoder = PairEncoder(tiny_bert_tokenizer(), 40)
    short, long = "small nodule of the left lung", random_report(random.Random(0), 200)

    (alone,) = encoder([short], ["normal"])
    batch = encoder([long, short, long], [short, "normal", long])

    assert batch[1] == alone
    assert all(len(sequence) <= 40 for sequence in batch)


@pytest.mark.parametrize("make", [tiny_bert_tokenizer, roberta_tokenizer])
@pytest.mark.parametrize("candidate", ["", " "])
@pytest.mark.parametrize("length", [0, 1, 61, 62, 63, 200])
def test_pair_encoder_an_empty_candidate_is_the_tokenizers_own(make, candidate, length):
    """The published code calls the tokenizer with two texts, of which it ignores an empty second one."""
    tokenizer = make()
    reference = "a " * length

    (sequence,) = PairEncoder(tokenizer, 64)([reference], [candidate])

    expected = tokenizer(reference, candidate, truncation=True, max_length=64)
    assert list(sequence.input_ids) == expected["input_ids"]
    assert list(sequence.token_type_ids) == expected.get("token_type_ids", [0] * len(sequence))
    special = len(tokenizer("", candidate)["input_ids"])
    assert sequence.num_cut == max(0, length - (64 - special))


def test_pair_encoder_collate_pads_to_the_longest():
    encoder = PairEncoder(tiny_bert_tokenizer())
    short, long = encoder(["a", "a mass in the lung"], ["no", "normal"])

    batch = encoder.collate([short, long])

    assert batch.keys() == {"input_ids", "attention_mask", "token_type_ids"}
    assert all(values.shape == (2, len(long)) for values in batch.values())
    assert batch["attention_mask"].sum(1).tolist() == [len(short), len(long)]
    assert batch["input_ids"][0, len(short) :].eq(0).all()


def test_pair_encoder_types_are_left_out_where_the_tokenizer_has_none():
    encoder = PairEncoder(roberta_tokenizer())
    assert encoder.collate(encoder(["a"], ["b"])).keys() == {"input_ids", "attention_mask"}


def test_pair_encoder_the_given_tokenizer_keeps_its_settings():
    tokenizer = tiny_bert_tokenizer()
    before = tokenizer.backend_tokenizer.to_str()
    PairEncoder(tokenizer, 512)(["a " * 700], ["no"])
    assert tokenizer.backend_tokenizer.to_str() == before


def test_pair_encoder_refuses_what_it_cannot_use():
    tokenizer = tiny_bert_tokenizer()
    with pytest.raises(ValueError, match="max_length 4 leaves no room"):
        PairEncoder(tokenizer, 4)
    with pytest.raises(ValueError, match="must be a fast tokenizer"):
        PairEncoder(object())
    with pytest.raises(ValueError, match="references and candidates must have the same length, got 1 and 2"):
        PairEncoder(tokenizer)(["a"], ["a", "b"])
