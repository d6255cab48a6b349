"""Batches of sequences of similar length, with little padding."""

from collections.abc import Sequence

__all__ = ["packed_batches"]


def packed_batches(lengths: Sequence[int], token_budget: int, batch_cost: int = 0) -> list[list[int]]:
    r"""Divide sequences into batches of minimal total cost.

    Sequences are sorted by length and divided to minimise the sum over batches of ``batch_cost`` and the padded tokens
    (rows times the longest sequence). No batch has more than ``token_budget`` padded tokens, except for a longer
    sequence, which is the only one in its batch. The longest sequences come first, so that a batch that exceeds the
    memory fails early.

    Args:
        lengths: Number of tokens of each of ``N`` sequences.
        token_budget: Maximum number of padded tokens of a batch.
        batch_cost: Fixed cost of a batch, in tokens.

    Returns:
        Indices of the sequences in each batch; every index occurs once.

    Example:
        >>> packed_batches([10, 500, 12, 480], token_budget=1024, batch_cost=64)
        [[3, 1], [0, 2]]
        >>> packed_batches([10, 500, 12, 480], token_budget=4096, batch_cost=2000)
        [[0, 2, 3, 1]]
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    # least[end] is the minimal cost of the first `end` sequences, begins[end] the start of their last batch.
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
