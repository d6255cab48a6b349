"""Settings of a reward server. The command line reads them for its help, so that this module imports no heavy one."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from rrg_rewards.integrations.common.batching import BatchLimits
from rrg_rewards.utilities.settings import MAX_WORKERS, SettingError, Settings, setting

if TYPE_CHECKING:
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.rewards.base import Reward

_MEBIBYTE = 2**20


@dataclass(frozen=True)
class ServerOptions(Settings):
    """A reward and the limits with which it is served.

    Args:
        reward: The reward. Nothing in it may be estimated while it is served.
        missing: Without it, the dialects that cannot carry null are refused.
        reference_column: Column of a label that is a plain text, and of the field ``reference`` of ``/rewards``.
        score_range: For ``/get_reward``, two rewards that become 0 and 1 in ``scores``. Default: the rewards.
        prompts: For ``/v1``, the columns of the reward by prompt; ``None`` refuses this dialect.
        token: Token that requests must carry; ``None`` for no check.
        max_concurrent: Maximum number of batches at a time if the reward is asynchronous. Other rewards score one batch
            at a time.
        max_request_bytes: Maximum size of the body of a request.
        max_total_bytes: Maximum size of the bodies of all requests at a time.

    Raises:
        ValueError: If a limit is out of its range, or the reward has settings that are estimated.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> ServerOptions(make_reward("crg"))
        Traceback (most recent call last):
        ...
        ValueError: reward 'crg' estimates prior from data, but a server has no training set, and its workers ...
        >>> ServerOptions(make_reward("crg", prior=0.2)).batch_limits.max_batch
        64
    """

    reward: "Reward" = field(repr=False)
    _: KW_ONLY
    missing: float | None = setting(None, "reward of unscorable completions where null is impossible", metavar="X")
    reference_column: str = "reference"
    score_range: Sequence[float] | None = None
    prompts: Mapping[str, Mapping[str, Any]] | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    max_batch: int = setting(
        64, "completions that are scored at a time (default: as in `config`, or 64)", metavar="N", minimum=1
    )
    max_wait_ms: float = setting(
        5.0, "milliseconds that a completion waits for others (default: as in `config`, or 5)", metavar="N", minimum=0
    )
    max_pending: int = setting(
        4096, "waiting completions in a worker; further requests get HTTP 429", metavar="N", minimum=1
    )
    max_concurrent: int = setting(8, minimum=1)
    timeout: float = setting(60.0, "seconds in which a request must arrive, and then be scored", metavar="N", above=0)
    max_characters: int = setting(
        200_000, "characters of a completion and its columns; longer ones get HTTP 413", metavar="N", minimum=1
    )
    max_request_bytes: int = setting(16 * _MEBIBYTE, minimum=1)
    max_total_bytes: int = 256 * _MEBIBYTE
    max_connections: int = setting(
        1024, "connections of a worker; further requests get HTTP 503", metavar="N", minimum=1
    )
    workers: int = setting(1, "processes", metavar="N", minimum=1, maximum=MAX_WORKERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_total_bytes < self.max_request_bytes:
            raise ValueError(
                f"max_total_bytes must be at least max_request_bytes {self.max_request_bytes}, got "
                f"{self.max_total_bytes}"
            )
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise ValueError("token must be printable ASCII characters and not empty")
        if estimated := self.reward.estimated:
            raise ValueError(
                f"reward {self.reward.__name__!r} estimates {', '.join(estimated)} from data, but a server has no "
                "training set, and its workers share no statistics. rrg-rewards fit writes settings with numbers: "
                "serve its file with `config`; or give numbers"
            )
        self.batch_limits  # noqa: B018 (checks the limits)

    @property
    def batch_limits(self) -> BatchLimits:
        """Limits of the queue. A reward that blocks its thread scores one batch at a time."""
        from rrg_rewards.rewards.base import is_asynchronous

        concurrent = self.max_concurrent if is_asynchronous(self.reward) else 1
        return BatchLimits(self.max_batch, self.max_wait_ms / 1000, self.max_pending, concurrent)


def columns_by_prompt(
    table: "Table", prompt_column: str, reward: "Reward", reference_column: str = "reference"
) -> dict[str, dict[str, Any]]:
    """Return the columns that a reward reads by prompt, for :attr:`ServerOptions.prompts`.

    Args:
        table: A table with one row for each prompt, or equal rows.
        prompt_column: Column of the prompts.
        reward: The reward.
        reference_column: Column of report texts.

    Raises:
        TableError: If a column does not exist, or a cell is invalid.
        SettingError: If two rows have the same prompt and different columns.

    Example:
        >>> from rrg_rewards.data import Table
        >>> from rrg_rewards.rewards import make_reward
        >>> table = Table({"prompt": ["Report study 1."], "reference": ["Normal."]})
        >>> columns_by_prompt(table, "prompt", make_reward("rouge"))
        {'Report study 1.': {'reference': 'Normal.'}}
    """
    # Not at the top, because the help of the command would wait for torch.
    from rrg_rewards.integrations.common.transcripts import plain_question

    prompts = table.required_texts(prompt_column)
    columns = {name: table.texts(name) if name == reference_column else table.values(name) for name in reward.columns}
    found: dict[str, dict[str, Any]] = {}
    for row, prompt in enumerate(prompts):
        values = {name: column[row] for name, column in columns.items()}
        if found.setdefault(plain_question(prompt), values) != values:
            raise SettingError(
                "prompts",
                f"{table.where(row)} has the prompt of an earlier row and another {' or '.join(columns)}, and /v1 "
                "finds a reference by its prompt only",
            )
    return found
