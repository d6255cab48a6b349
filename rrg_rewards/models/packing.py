"""Division of sequences of different lengths into batches with little padding."""

from collections.abc import Sequence

__all__ = ["packed_batches"]


def packed_batches(lengths: Sequence[int], token_budget: int, batch_cost: int = 0) -> list[list[int]]:
    r"""Divide sequences into the batches that cost least.

    Sequences are sorted by length and divided so that the sum over batches of ``batch_cost`` and of padded tokens
    (rows times the longest) is least, while no batch has more than ``token_budget`` padded tokens; a sequence longer
    than that is a batch of its own. The longest come first, so that a batch too large for the memory fails at once.

    Args:
        lengths: Tokens of each of ``N`` sequences.
        token_budget: Padded tokens of a batch at most.
        batch_cost: What a batch costs besides its tokens, in tokens.

    Returns:
        Indices of the sequences in each batch; every index once.

    Example:
        >>> packed_batches([10, 500, 12, 480], token_budget=1024, batch_cost=64)
        [[3, 1], [0, 2]]
        >>> packed_batches([10, 500, 12, 480], token_budget=4096, batch_cost=2000)
        [[0, 2, 3, 1]]
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    # Of the first `end` sequences: the least cost, and where the last of the batches that give it begins.
    least, begins = [0.0], [0]
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        first = max(0, end - max(1, token_budget // max(longest, 1)))
        costs = [least[begin] + batch_cost + (end - begin) * longest for begin in range(first, end)]
        chosen = min(range(len(costs)), key=costs.__getitem__)
        least.append(costs[chosen])
        begins.append(first + chosen)
    batches, end = [], len(order)
    while end:
        batches.append(order[begins[end] : end])
        end = begins[end]
    return batches
