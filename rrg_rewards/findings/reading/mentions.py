"""Find mentions of a lexicon's concepts in a sentence."""

from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

from rrg_rewards.findings.knowledge.load import cue_words
from rrg_rewards.findings.reading.cue_codes import ARTICLE, INSIDE, JOINT, NORMAL, OTHER, PLACE, PURPOSE, WITH
from rrg_rewards.findings.reading.lexicon import Lexicon, Rule
from rrg_rewards.findings.reading.measurements import size_at
from rrg_rewards.findings.reading.mention import Mention, matched_words, without_mixtures
from rrg_rewards.findings.reading.negation import ABSENT, PRESENT, NegationScope
from rrg_rewards.findings.reading.phrases import Phrase, match_end, union

# Maximum number of tokens before the colon of a label such as "Pleura and pericardium:".
_LABEL_SIZE = 4
# Number of words before a structure that can make it a place, and after its size that can say that it is none.
_PLACE_REACH, _SIZE_REACH = 4, 3
# A structure that is more times as large as its limit is none: "200 cm of small bowel".
_LARGEST = 6
# Cues between two findings.
_JOINING = JOINT | OTHER | WITH
_start_and_rank = itemgetter(0, 1)


def find_mentions(
    lexicon: Lexicon, tokens: Sequence[str], with_presence: bool = True
) -> tuple[list[Mention], NegationScope | None]:
    """Return the mentions in a sentence, and its clauses and codes; these are ``None`` if no phrase matches.

    Args:
        lexicon: A compiled lexicon.
        tokens: Tokens from :func:`rrg_rewards.findings.reading.tokens.tokenise`.
        with_presence: Whether to read the presence of the mentions; otherwise all are called present.
    """
    mentions: list[Mention] = []
    coded = _coded(lexicon, tokens)
    if coded is None:
        return mentions, None
    words, codes, sentence, cues, label = coded
    scope: NegationScope | None = None
    named: dict[int, int] = {}
    misplaced: list[Mention] = []
    for i, _, end, rule in sorted(lexicon.rules.matches(words, codes, cues), key=_start_and_rank):
        # A concept is named once: "pleural effusion" is not also the "effusion" in it.
        if named.get(rule.meaning, 0) > i or (rule.above and not _exceeds(words, i, end, rule.above)):
            continue
        if end > i + 1 + len(rule.rest) and _is_of_two(lexicon, rule, words, codes, i, end):
            continue
        scope = scope or NegationScope(codes, cues, lexicon, label)
        is_conditional = rule.conditional_on & sentence
        if is_conditional and not _fits(rule, i, end, scope):
            continue
        if not is_conditional or _is_placed(rule, i, end, scope):
            named[rule.meaning] = end
            presence = _presence(rule, i, end, scope) if with_presence else PRESENT
            mentions.append(Mention(rule.meaning, presence, i, end, rule, codes))
        elif rule.not_at and not (rule.at or rule.wide):
            misplaced.append(Mention(rule.meaning, PRESENT, i, end, rule, codes))
    if scope is None:
        return mentions, scope
    if misplaced and cues & _JOINING:
        mentions = _with_placed(mentions, misplaced, scope, with_presence)
    return without_mixtures(mentions, scope), scope


def _presence(rule: Rule, start: int, end: int, scope: NegationScope) -> int:
    return ABSENT if rule.absent else scope.presence(start, end)


def _with_placed(
    mentions: list[Mention], misplaced: Iterable[Mention], scope: NegationScope, with_presence: bool
) -> list[Mention]:
    """Add the mentions that cannot be in the organ of the finding that "and" or "with" joins to them.

    The granuloma in "calcified granuloma and degenerative changes of the spine" is in the lung, as without an organ.
    """
    taken = {i for mention in mentions for i in range(mention.start, mention.end)}
    added = []
    for mention in misplaced:
        rule, start, end = mention.rule, mention.start, mention.end
        if taken.isdisjoint(range(start, end)) and _is_placed(rule, start, end, scope, scope.own_item(start, end)):
            taken.update(range(start, end))
            added.append(mention._replace(presence=_presence(rule, start, end, scope)) if with_presence else mention)
    return sorted([*mentions, *added], key=attrgetter("start"))


class _Coded(NamedTuple):
    """A sentence that can contain mentions.

    Attributes:
        words: Its words, in which each compound is one word and empty ones.
        codes: Their codes.
        sentence: Their union.
        cues: The union without the colon of a label.
        label: Bits of the sites that a label before the sentence names.
    """

    words: Sequence[str]
    codes: list[int]
    sentence: int
    cues: int
    label: int


def _coded(lexicon: Lexicon, tokens: Sequence[str]) -> _Coded | None:
    """Look up the words of a sentence; ``None`` if it cannot contain a mention."""
    codes = list(map(lexicon.vocabulary.__getitem__, tokens))
    sentence = union(codes)
    if not sentence & lexicon.heads:
        return None
    words = tokens
    compounds = lexicon.compounds.find(tokens, codes, sentence) if sentence & lexicon.compounds.bits else None
    if compounds:
        words = _merged(lexicon, tokens, codes, compounds)
        sentence = union(codes)
        if not sentence & lexicon.firsts:
            return None
    if ":" not in tokens[1 : _LABEL_SIZE + 1]:
        return _Coded(words, codes, sentence, sentence, 0)
    label = _join_label(lexicon, tokens, codes)
    return _Coded(words, codes, sentence, union(codes), label)


def _is_of_two(lexicon: Lexicon, rule: Rule, words: Sequence[str], codes: Sequence[int], start: int, end: int) -> bool:
    """Whether the words that match a phrase are in two findings.

    The phrase also begins after "with" ("pericarditis with pericardial effusion") or with its first word again ("bowel
    thickening and bowel dilatation"), or its first word is a finding, and the next one another organ ("bone lesion and
    prostate lesion").
    """
    if any(
        (codes[i - 1] & WITH or words[i] == words[start])
        and codes[i] & rule.first
        and match_end(codes, i, rule.rest) == end
        for i in range(start + 2, end - len(rule.rest))
    ):
        return True
    if _is_across(lexicon, rule, codes, start, end):
        return True
    joint, following = codes[start + 1 : start + 3]
    organ = start + 2 + bool(following & (NORMAL | ARTICLE))
    if not (joint & JOINT or (joint & WITH and following & NORMAL)) or codes[start] & lexicon.sites:
        return False
    return bool(lexicon.vocabulary[words[start]] & lexicon.names and union(codes[organ : organ + 1]) & lexicon.sites)


def _is_across(lexicon: Lexicon, rule: Rule, codes: Sequence[int], start: int, end: int) -> bool:
    """Whether a phrase goes from one finding to a word of the next one, which has its own organ.

    "Dilated esophagus and aortic aneurysm" is no dilated aorta, "pleural effusion and apical scarring" no scarring of
    the pleura, and "hepatic steatosis and enlarged thyroid" no large liver. "Liver and spleen enlargement" is both.
    """
    sites, names = lexicon.sites, lexicon.names & ~lexicon.sites
    for joint in range(start + 1, end - 1):
        if not codes[joint] & _JOINING:
            continue
        first = joint + 1 + bool(codes[joint + 1] & ARTICLE)
        if first == end - 1 and codes[first] & sites:
            return bool(union(codes[end : end + 1]) & names)
        matched = matched_words(codes, start, end, rule.rest)
        if joint - 1 in matched and codes[joint - 1] & sites and first == end - 1:
            # "Nodule in the lung and metastases in the liver"
            return _has_place(codes, end, sites & ~codes[joint - 1])
        if joint not in matched and (joint - 1 in matched or not codes[joint - 1] & names):
            # The words before "and" are no finding of their own.
            continue
        others = sites & ~union(codes[i] for i in matched)
        # "Coronary and aortic calcifications" has one finding.
        if codes[first] & others and (joint not in matched or codes[joint - 1] & names):
            return first + 1 in matched
    return False


def _has_place(codes: Sequence[int], end: int, sites: int) -> bool:
    """Whether a preposition and one of some sites follow."""
    i = end + 1 + bool(union(codes[end + 1 : end + 2]) & (ARTICLE | PLACE))
    return bool(union(codes[end : end + 1]) & (INSIDE | PURPOSE) and union(codes[i : i + 1]) & sites)


def _join_label(lexicon: Lexicon, tokens: Sequence[str], codes: list[int]) -> int:
    """Remove, in ``codes``, the colon after a label that only names a place: "Pleura: thickened on the right".

    It remains if the statement names a place in another organ: "Mediastinum: there is a nodule in the thyroid".

    Returns:
        The bits of the label's sites, which are those of each item of the list after it that names none; 0 for none.
    """
    colon = tokens.index(":")
    sites = union(codes[:colon]) & lexicon.sites
    vague_words = frozenset() if sites & lexicon.vocabulary["lung"] else cue_words("labels", "vague")
    vague = [i for i in range(colon, len(codes)) if tokens[i] in vague_words]
    named = union(code for i, code in enumerate(codes) if i > colon and i not in vague)
    # "Bronchiectasis: none" is an answer.
    if not sites or codes[colon] != lexicon.vocabulary[":"] or named & lexicon.sites & ~sites:
        return 0
    for i in vague:
        codes[i] &= ~lexicon.sites
    fillers = cue_words("labels", "fillers")
    if all(code & lexicon.sites or token in fillers for code, token in zip(codes[:colon], tokens, strict=False)):
        codes[colon] = 0
    return sites


def sentence_scope(lexicon: Lexicon, tokens: Sequence[str]) -> NegationScope:
    """Return the clauses and codes of a sentence, in which compounds are replaced by one word."""
    codes = list(map(lexicon.vocabulary.__getitem__, tokens))
    _merged(lexicon, tokens, codes, lexicon.compounds.find(tokens, codes, union(codes)))
    if ":" in tokens[1 : _LABEL_SIZE + 1]:
        _join_label(lexicon, tokens, codes)
    return NegationScope(codes, union(codes), lexicon)


def _merged(
    lexicon: Lexicon, tokens: Sequence[str], codes: list[int], compounds: Iterable[tuple[int, int, Phrase[str]]]
) -> Sequence[str]:
    """Replace the codes of compounds in place; return the tokens in which each compound is one word and empty ones."""
    words, filled = list(tokens), lexicon.vocabulary["~filled"]
    for start, end, compound in compounds:
        codes[start] = lexicon.vocabulary[compound.meaning]
        codes[start + 1 : end] = [filled] * (end - start - 1)
        words[start:end] = [compound.meaning, *[""] * (end - start - 1)]
    return words


def _exceeds(words: Sequence[str], start: int, end: int, limit: float) -> bool:
    """Whether the size of the structure at ``start`` to ``end`` follows and exceeds a limit in mm: "aorta is 5 cm"."""
    between, dimension = cue_words("limits", "between"), cue_words("limits", "dimension")
    # The further words of a compound are empty.
    i = next((i for i in range(end, len(words)) if words[i] and words[i] not in between), len(words))
    size = size_at(words, i) if i < len(words) else None
    if size is None or not limit < size.largest <= _LARGEST * limit:
        return False
    before, joining, following = words[max(0, start - _PLACE_REACH) : start], words[end:i], words[size.end :]
    is_stated = not dimension.isdisjoint((*joining, *following[:_SIZE_REACH]))
    is_held = not is_stated and not cue_words("limits", "holding").isdisjoint(joining)
    skipped = cue_words("limits", "skipped")
    governing = next((word for word in reversed(before) if word and word not in skipped), "")
    is_place = governing in cue_words("limits", "beside") and dimension.isdisjoint(before)
    return not (is_held or is_place or _is_other_size(following))


def _is_other_size(following: Sequence[str]) -> bool:
    """Whether the words after a size say that it is that of a lesion, a distance, or normal."""
    normal, between = cue_words("limits", "normal"), cue_words("limits", "between")
    if following[:1] == [","]:
        # "8 mm, normal after cholecystectomy", "8 mm, which is normal", but not "15 cm, normal liver"
        said = following[3:] if following[1:2] == ["which"] else following[1:]
        return not normal.isdisjoint(said[:1]) and not set(said[1:2]) - cue_words("limits", "reason")
    after = next((word for word in following[:_SIZE_REACH] if word not in between), "")
    return after in normal or after in cue_words("limits", "not_size")


def _fits(rule: Rule, start: int, end: int, scope: NegationScope) -> bool:
    """Whether the words around a phrase satisfy the conditions of its rule, except for organs."""
    codes = scope.codes
    if (
        (rule.not_next and rule.not_next & union(codes[end : end + 2]))
        or (rule.not_previous and rule.not_previous & union(codes[max(0, start - 2) : start]))
        or (rule.not_within and rule.not_within & union(codes[start:end]))
    ):
        return False
    if not (rule.needs or rule.bars):
        return True
    context = scope.context(start, rule.wide)
    around = scope.union(context.start, context.stop)
    return around & rule.needs == rule.needs and not around & rule.bars


def _is_placed(rule: Rule, start: int, end: int, scope: NegationScope, context: range | None = None) -> bool:
    """Whether the organ of a phrase, in its context, is one of those that its rule allows."""
    if not (rule.at or rule.not_at):
        return True
    context = scope.context(start, rule.wide) if context is None else context
    site = scope.nearest(start, end, context)
    return not ((rule.at and not site & rule.at) or site & rule.not_at)
