"""The weight of normal references in rewards above chance."""

_MOST_LOST = 1 / 8


def normal_reference_weight(share: float) -> float:
    r"""Return the weight :math:`\lambda` of a normal reference, where abnormal ones have the weight 1.

    .. math:: \lambda = \min\Bigl(1, \frac{1 - q}{8 q}\Bigr)

    On a normal reference a report can only lose, at most :math:`\lambda`, and silence loses nothing. Since
    :math:`q \lambda \le (1 - q) / 8`, reports that earn 1/8 on average on abnormal references earn no less than silence
    over all references, whatever the share of normal ones. Present systems earn 0.09 to 0.20 there.

    Args:
        share: Share :math:`q` of normal references, in [0, 1].

    Example:
        >>> normal_reference_weight(0.1), normal_reference_weight(0.5), normal_reference_weight(1.0)
        (1.0, 0.125, 0.0)
    """
    return min(1.0, _MOST_LOST * (1 - share) / share) if share else 1.0
