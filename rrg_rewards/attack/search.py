"""Search of the policies with the highest mean reward: races, greedy search and evolutionary search."""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from rrg_rewards.attack.calls import PolicyTable
from rrg_rewards.attack.families import STYLES, Family, Listing, Phrase, Policy

_T = TypeVar("_T")

# Share of survivors of a comparison, and their minimum number.
_KEPT = 0.25
_LEAST_KEPT = 4
# Shares of a family's budget for complete texts and single phrases, for other values of the slots of the best of them,
# and for lists of the best phrases. Greedy search has the rest.
_FIRST, _REFINED, _LISTED = 0.45, 0.15, 0.15
_REFINED_TEXTS = 3
# Policies of each family that are compared on all references of the search.
FINALISTS = 4
_POPULATION = 16
# Numbers of findings or words in the lists that are added to honest reports.
_LIST_SIZES = (64, 8)
# Number of sentences of the longest texts that evolutionary search repeats.
_MOST_REPEATED = 64
# Consecutive rounds without a better text after which a search ends.
_PATIENCE = 3


def race(table: PolicyTable, policies: Iterable[Policy], budget: int, first: int = 0) -> list[Policy]:
    """Compare policies on few rows, and the best of them on more and more rows (successive halving).

    Source: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", 2016.

    Args:
        table: Table of rewards.
        policies: The policies. If the budget does not suffice for all, the first ones are compared.
        budget: Maximum number of calls.
        first: Number of rows of a comparison before the others; 0 for none.

    Returns:
        The compared policies, the best first. Those that were compared on more rows come first.
    """
    pool = list(policies)
    ranked: list[Policy] = []
    sizes = [first, *table.sizes] if first else table.sizes
    for number, size in enumerate(sizes):
        # The first comparison, of all policies, may take half of the budget, and so on.
        pool, cost = table.compare(pool, size, budget if number == len(sizes) - 1 else budget // 2)
        if not pool:
            break
        budget -= cost
        kept = max(_LEAST_KEPT, math.ceil(_KEPT * len(pool)))
        # The compared policies replace the same ones of the last round, which stood at the beginning.
        ranked = list(dict.fromkeys([*pool, *ranked]))
        pool = pool[:kept]
    return ranked


def screen_findings(table: PolicyTable, findings: Sequence[str], budget: int) -> tuple[str, ...]:
    """Return findings in an order in which common ones and those that the reward pays come first.

    Args:
        table: Table of rewards.
        findings: Findings by falling frequency.
        budget: Maximum number of calls.
    """
    by_policy = {Policy((f"{finding.capitalize()}.",)): finding for finding in findings}
    screened, _ = table.compare(by_policy, table.sizes[0], budget)
    return tuple(dict.fromkeys(_interleaved([by_policy[policy] for policy in screened], findings)))


def search_family(
    table: PolicyTable, family: Family, budget: int, draw: random.Random
) -> tuple[list[Policy], list[str]]:
    """Search a family: complete texts and phrases, lists of the best phrases, and greedy search.

    Args:
        table: Table of rewards.
        family: The family.
        budget: Maximum number of calls.
        draw: Source of random choices.

    Returns:
        Candidates for the best policy, and the best phrases.
    """
    before = table.calls.spent
    singles = {family.policy([phrase.text]): phrase for phrase in family.phrases}
    listings = {family.policy(listing.sentences(family.values)): listing for listing in family.listings()}
    ranked = race(
        table, _interleaved(family.texts, family.common(), singles, listings), int(_FIRST * budget), family.first_rows
    )
    refined = _refined(family, [singles[policy] for policy in ranked if policy in singles][:_REFINED_TEXTS])
    refined |= _refined(family, [listings[policy] for policy in ranked if policy in listings][:_REFINED_TEXTS])
    ranked_again = race(table, refined, int(_REFINED * budget))
    tried = [policy for policy in (*ranked_again, *ranked) if len(policy.sentences) == 1 and policy not in family.texts]
    tried.sort(key=lambda policy: (-table.compared_rows(policy), -table.gain(policy, table.sizes[0])))
    phrases = [policy.sentences[0] for policy in tried]
    listed = race(table, _lists(family, phrases), int(_LISTED * budget))
    candidates = [*ranked[:FINALISTS], *ranked_again[:FINALISTS], *listed[:FINALISTS]]
    if phrases and not family.edits:
        left = budget - (table.calls.spent - before)
        candidates += _greedy(table, table.ranked(candidates, table.sizes[0])[0], phrases, left, draw)
    return candidates, phrases


def _refined(family: Family, texts: Sequence[Phrase] | Sequence[Listing]) -> dict[Policy, None]:
    """Return the policies that differ from given phrases or listings in one choice."""
    others = (other for text in texts for other in text.neighbours(family.values))
    return dict.fromkeys(
        family.policy([other.text] if isinstance(other, Phrase) else other.sentences(family.values)) for other in others
    )


def _lists(family: Family, phrases: Sequence[str]) -> Iterator[Policy]:
    count = 2
    while count <= len(phrases):
        yield family.policy(phrases[:count])
        count *= 2


def _interleaved(*groups: Iterable[_T]) -> Iterator[_T]:
    """Yield the items of several groups in turn, so that a limited budget covers all groups."""
    iterators = [iter(group) for group in groups]
    while iterators:
        for iterator in list(iterators):
            try:
                yield next(iterator)
            except StopIteration:
                iterators.remove(iterator)


def _search_size(table: PolicyTable) -> int:
    return table.sizes[min(1, len(table.sizes) - 1)]


def _greedy(
    table: PolicyTable, start: Policy, phrases: Sequence[str], budget: int, draw: random.Random
) -> list[Policy]:
    """Add or remove one sentence at a time while the mean reward rises; return the best policy, or none."""
    size = _search_size(table)
    best, failures, bank = start, 0, phrases[: 4 * _POPULATION]
    compared, cost = table.compare([best], size, budget)
    while compared and failures < _PATIENCE:
        budget -= cost
        additions = [phrase for phrase in bank if phrase not in best.sentences]
        added = draw.sample(additions, min(len(additions), _POPULATION - 4))
        nearby = [(*best.sentences, phrase) for phrase in added]
        places = draw.sample(range(len(best.sentences)), min(4, len(best.sentences))) if len(best.sentences) > 1 else []
        nearby += [(*best.sentences[:place], *best.sentences[place + 1 :]) for place in sorted(places)]
        found, cost = table.compare((replace(best, sentences=sentences) for sentences in nearby), size, budget)
        if not found:
            break
        if table.gain(found[0], size) > table.gain(best, size):
            best, failures = found[0], 0
        else:
            failures += 1
    return compared and [best]


def listed(names: Sequence[str], end: str) -> list[Policy]:
    """Return texts that together contain all names, in long and in short lists.

    Example:
        >>> [policy.text for policy in listed(["nodule", "mass"], ".")]
        ['Nodule. Mass.']
    """
    texts = [f"{name.capitalize()}{end}" for name in names]
    lists = [Policy(tuple(texts[start : start + size])) for size in _LIST_SIZES for start in range(0, len(texts), size)]
    return list(dict.fromkeys(lists))


def add_texts(
    table: PolicyTable,
    texts: Sequence[Policy],
    phrases: Sequence[str],
    lists: Sequence[Policy],
    budget: int,
    before: bool = False,
) -> list[Policy]:
    """Search the constant text that adds most to honest reports.

    Args:
        table: Table of rewards.
        texts: The best constant texts of the other families.
        phrases: Single phrases.
        lists: Texts that contain all findings and words: some pay only beside a report, and are in no best text.
        budget: Maximum number of calls.
        before: Whether the text comes before the report instead of after it.
    """
    constants = _interleaved(lists, texts, (Policy((phrase,)) for phrase in phrases))
    singles = race(table, (text.added_to_report(before) for text in constants), budget // 2)
    # The best additions together, of those that raise the reward.
    paid = [policy.sentences[1 - before] for policy in singles if table.gain(policy, table.sizes[0]) > 0]
    together = (Policy((" ".join(paid[:count]),)).added_to_report(before) for count in range(2, len(paid) + 1))
    return [*singles[:FINALISTS], *race(table, together, budget // 2)[:FINALISTS]]


def cross(table: PolicyTable, texts: Sequence[Policy], budget: int) -> list[Policy]:
    """Join the best texts of two families in both orders, and write each in other forms; the best come first.

    Args:
        table: Table of rewards.
        texts: The best texts of all families, compared on all rows.
        budget: Maximum number of calls.

    Returns:
        The best crossed texts.
    """
    ranked = table.ranked(map(_plain, texts))
    styled = [Policy((style(policy.text),)) for policy in ranked for style in STYLES.values()]
    places = [(one, other) for one in range(len(ranked)) for other in range(len(ranked)) if one != other]
    pairs = [
        Policy((*ranked[one].sentences, *ranked[other].sentences))
        for one, other in sorted(places, key=lambda pair: (sum(pair), pair))
    ]
    return race(table, _interleaved(pairs, styled), budget)[: 2 * FINALISTS]


def cross_edits(table: PolicyTable, edits: Sequence[Policy], budget: int) -> list[Policy]:
    """Apply the best edit of a family to honest reports that the best one of another has changed; the best come first.

    Args:
        table: Table of rewards.
        edits: The best edits of all families, compared on all rows. Edits of single sentences are not crossed.
        budget: Maximum number of calls.
    """
    ranked = table.ranked(policy for policy in edits if policy.edit == "report")
    crossed = (
        Policy((outer.text.replace("{report}", inner.text),), edit="report")
        for outer in ranked
        for inner in ranked
        if outer != inner and "{report}" in outer.text
    )
    return race(table, crossed, budget)[: 2 * FINALISTS]


def evolve(
    table: PolicyTable, texts: Sequence[Policy], phrases: Sequence[str], budget: int, draw: random.Random
) -> list[Policy]:
    """Recombine constant texts: join two, add, remove or replace a sentence, repeat a text, or change its form.

    Args:
        table: Table of rewards.
        texts: The best texts of all families.
        phrases: The best phrases of all families.
        budget: Maximum number of calls.
        draw: Source of random choices.

    Returns:
        The best of the last generation.
    """
    size = _search_size(table)
    parents, cost = table.compare((_plain(policy) for policy in texts if not policy.edit), size, budget // 2)
    failures = 0
    while parents and failures < _PATIENCE:
        budget -= cost
        parents = parents[:_POPULATION]
        made = [_child(parents, phrases, draw) for _ in range(_POPULATION)]
        children, cost = table.compare((child for child in made if child.sentences), size, budget)
        if not children:
            break
        failures = 0 if table.gain(children[0], size) > table.gain(parents[0], size) else failures + 1
        parents = table.ranked(dict.fromkeys([*parents, *children]), size)
    return parents[:FINALISTS]


def _plain(policy: Policy) -> Policy:
    return policy if policy.join == " " and not policy.end else Policy((policy.text,))


def _child(parents: Sequence[Policy], phrases: Sequence[str], draw: random.Random) -> Policy:
    # Better parents, which come first, are drawn more often.
    one, other = (parents[int(len(parents) * draw.random() ** 2)].sentences for _ in range(2))
    change = draw.choice(["join", "add", "remove", "replace", "repeat", "restyle"])
    place = draw.randrange(len(one))
    if change == "join":
        cut = draw.randrange(len(other))
        return Policy(tuple(dict.fromkeys((*one, *other[cut:]))))
    if change == "repeat" and len(one) <= _MOST_REPEATED:
        return Policy((*one, *one))
    if change == "restyle":
        return Policy((STYLES[draw.choice([*STYLES])](" ".join(one)),))
    if change == "remove":
        return Policy((*one[:place], *one[place + 1 :]))
    phrase = draw.choice(phrases) if phrases else draw.choice(other)
    if change == "add":
        return Policy((*one, phrase))
    return Policy((*one[:place], phrase, *one[place + 1 :]))


def finalists(table: PolicyTable, candidates: Sequence[Policy]) -> list[Policy]:
    """Return the best candidates, at most ``FINALISTS``, by mean reward on the rows of a search's second comparison.

    Args:
        table: Table of rewards.
        candidates: Policies that the search compared on at least the first rows.
    """
    known, size = {policy.key: policy for policy in candidates}.values(), _search_size(table)
    # A gain on few rows is a worse estimate; candidates that were compared on more rows come first.
    many = table.ranked((policy for policy in known if not table.cost(policy, size)), size)
    rest = table.ranked((policy for policy in known if table.cost(policy, size)), table.sizes[0])
    return [*many, *rest][:FINALISTS]
