"""A reward of a server."""

import asyncio
import json
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.judges.server.retries import CallError
from rrg_rewards.metrics.judged import FAILURE_KINDS, JudgedScores
from rrg_rewards.rewards.asynchronous import AsyncReward
from rrg_rewards.rewards.completions import Completion, completion_texts
from rrg_rewards.rewards.remote_client import RemoteOptions, RewardClient, TooLongError
from rrg_rewards.utilities.checks import check_same_length
from rrg_rewards.utilities.options import takes_options
from rrg_rewards.utilities.processes import run_coroutine

__all__ = ["RemoteReward", "RemoteRewardWarning"]


class RemoteRewardWarning(UserWarning):
    """Reward servers gave no reward for some completions."""


class RemoteReward(AsyncReward):
    """The reward of one or several servers that ``rrg-rewards serve`` has started; asynchronous.

    A call returns a coroutine. Completions are sent in requests of ``batch_size``, to each address in turn. A request
    that fails (HTTP 408, 425, 429, 5xx, a broken connection or no reply in time) is sent to the other addresses, and
    then again after a pause. If it still fails, its completions have the reward ``None`` and are counted: with
    ``log_metric``, the reward logs ``{name}/failed``, and it warns with the kinds of failures. An unscorable completion
    has the reward ``None``, as on the server. A request that is refused (wrong token, missing column) raises an error.

    All servers must serve the same reward with the same settings; the signatures of their replies are compared.

    Report text is sent to the addresses only, which must be on this machine unless ``allow_remote`` is set. Redirects
    are not followed, and proxies of the environment are not used.

    Args:
        urls: Address of the server, or addresses of several.
        reference_column: Column of the data set that is sent as ``reference``, which the server takes for its column of
            references; ``None`` if the served reward reads no references.
        context_columns: Further columns that the served reward reads: a list of names, or a mapping from the names on
            the server to those in the data set.
        name: Name under which trainers log the reward.
        log_details: Log the failures by kind.
        options: Fields of :class:`rrg_rewards.rewards.remote_client.RemoteOptions`.

    Raises:
        ValueError: If an address is not a plain HTTP address, or is on another machine without ``allow_remote``; when
            called, if a column is missing, a server refuses the request, or servers serve different rewards.
        ModuleNotFoundError: When called, if aiohttp is not installed, naming the pip command.

    Example:
        >>> from rrg_rewards.rewards import RemoteReward
        >>> reward = RemoteReward(["http://localhost:8787", "http://localhost:8788"], context_columns=["age"])
        >>> reward.columns
        ('reference', 'age')
        >>> import asyncio
        >>> asyncio.run(reward(["Edema."], reference=["Normal."], age=[66]))  # doctest: +SKIP
        [-0.5]
    """

    @takes_options(options=RemoteOptions())
    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        reference_column: str | None = "reference",
        context_columns: Mapping[str, str] | Sequence[str] = (),
        name: str = "remote",
        log_details: bool = False,
        options: RemoteOptions,
    ) -> None:
        super().__init__(name, log_details=log_details)
        if isinstance(context_columns, str):
            raise TypeError(f"context_columns must be a list of names or a mapping, got {context_columns!r}")
        self._client = RewardClient(urls, options)
        context = context_columns if isinstance(context_columns, Mapping) else {one: one for one in context_columns}
        self._sent = {**({} if reference_column is None else {"reference": reference_column}), **context}
        self._served: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that are sent."""
        return tuple(self._sent.values())

    @property
    def signature(self) -> str:
        """Signature of the served reward, which is requested from a server if there was no reply yet.

        Raises:
            ConnectionError: If no server answers.
        """
        if self._served is None:
            run_coroutine(self._request_signature())
        return f"remote|{self._served}{self.output.suffix}"

    def score(self, completions: Sequence[Completion], **columns: Any) -> JudgedScores:
        """Score completions, and wait for the servers; see :meth:`Reward.score`."""
        return run_coroutine(self.score_async(completions, **columns))

    async def score_async(self, completions: Sequence[Completion], **columns: Any) -> JudgedScores:
        """Score completions without blocking the event loop; NaN without a reward from a server."""
        texts = completion_texts(completions)
        sent = {name: self._column(columns, column) for name, column in self._sent.items()}
        for name, values in sent.items():
            check_same_length("completions", texts, f"column {self._sent[name]!r}", values)
        rows = [
            {"completions": [] if text is None else text, **{name: values[row] for name, values in sent.items()}}
            for row, text in enumerate(texts)
        ]
        replies = await self._replies(rows)
        results = tuple(reply if isinstance(reply, JudgeFailure) else reply.get("failure") for reply in replies)
        self._warn(results)
        return _scores(replies, results)

    async def _replies(self, rows: Sequence[Mapping[str, Any]]) -> list["_Reply"]:
        """Return the reply to each row. Rows without one in time have a failure."""
        options = self._client.options
        slots = asyncio.Semaphore(options.concurrency)
        starts = range(0, len(rows), options.batch_size)
        async with self._client.session() as session:

            async def ask(start: int) -> list[_Reply]:
                async with slots:
                    return await self._ask(session, rows[start : start + options.batch_size])

            tasks = [asyncio.ensure_future(ask(start)) for start in starts]
            try:
                if tasks:
                    await asyncio.wait(tasks, timeout=options.deadline, return_when=asyncio.FIRST_EXCEPTION)
                late = JudgeFailure("deadline", f"no reward within {options.deadline} s")
                found: list[_Reply] = []
                # An error is raised before a task that it has cut short counts as late.
                for task in sorted(tasks, key=lambda task: not (task.done() and task.exception())):
                    if task.done():
                        task.result()
                for start, task in zip(starts, tasks, strict=True):
                    number = len(rows[start : start + options.batch_size])
                    found += task.result() if task.done() else [late] * number
                return found
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, session: Any, rows: Sequence[Mapping[str, Any]]) -> list["_Reply"]:
        body = {name: [row[name] for row in rows] for name in rows[0]}
        content = json.dumps(body, default=_plain).encode()
        try:
            reply = await self._client.call(session, "POST", "/rewards", content)
            parsed = _parse(reply, len(rows))
        except TooLongError:
            if len(rows) == 1:
                return [JudgeFailure("status", "the completion is too long for the server")]
            half = len(rows) // 2
            return [*await self._ask(session, rows[:half]), *await self._ask(session, rows[half:])]
        except CallError as error:
            return [JudgeFailure(error.kind, str(error))] * len(rows)
        self._compare(str(reply["signature"]))
        return [*parsed]

    async def _request_signature(self) -> None:
        async with self._client.session() as session:
            try:
                info = await self._client.call(session, "GET", "/info", None)
            except CallError as error:
                raise ConnectionError(f"no reward server answers at {', '.join(self._client.urls)}: {error}") from None
        self._compare(str(info.get("signature")))

    def _compare(self, signature: str) -> None:
        if self._served is None:
            self._served = signature
        if signature != self._served:
            raise ValueError(
                f"the reward servers at {', '.join(self._client.urls)} serve different rewards, {self._served!r} and "
                f"{signature!r}; start them with the same settings and version"
            )

    def _warn(self, results: Sequence[JudgeFailure | None]) -> None:
        counts = Counter(result.kind for result in results if result is not None)
        if counts:
            by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
            reason = next(result.reason for result in results if result is not None)
            warnings.warn(
                f"{self.__name__}: {sum(counts.values())} of {len(results)} completions have no reward from a server "
                f"({by_kind}; first: {reason})",
                RemoteRewardWarning,
                stacklevel=2,
            )


_Reply = JudgeFailure | dict[str, Any]


def _plain(value: Any) -> Any:
    """Return numbers and arrays of numpy and torch as JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"columns that are sent to a reward server must be JSON, got {type(value).__name__}")


def _parse(reply: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    """Return reward, sub-scores and failure of each completion.

    Raises:
        CallError: If the reply has another form.
    """
    rewards: Any = reply.get("rewards")
    failures: Any = reply.get("failures")
    scores: Any = reply.get("scores")
    lists = [rewards, failures, *(scores.values() if isinstance(scores, dict) else [None])]
    if not all(isinstance(values, list) and len(values) == number for values in lists):
        raise CallError("malformed", f"the reply does not have {number} rewards, sub-scores and failures")
    numbers = [value for values in (rewards, *scores.values()) for value in values]
    if not all(value is None or _is_finite(value) for value in numbers) or "signature" not in reply:
        raise CallError("malformed", "a reward or sub-score of the reply is not a number, or it has no signature")
    return [
        {
            "reward": rewards[row],
            "scores": {name: values[row] for name, values in scores.items()},
            "failure": _failure(failures[row]),
        }
        for row in range(number)
    ]


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _failure(kind: Any) -> JudgeFailure | None:
    if kind is None:
        return None
    if kind not in FAILURE_KINDS:
        raise CallError("malformed", "the reply has an unknown kind of failure")
    return JudgeFailure(kind, "the judge of the server failed")


def _scores(replies: Sequence[_Reply], results: tuple[JudgeFailure | None, ...]) -> JudgedScores:
    known = [{} if isinstance(reply, JudgeFailure) else reply for reply in replies]
    names = dict.fromkeys(name for reply in known for name in reply.get("scores", ()))
    return JudgedScores(
        _tensor([reply.get("reward") for reply in known]),
        {name: _tensor([reply.get("scores", {}).get(name) for reply in known]) for name in names},
        results=results,
    )


def _tensor(values: Sequence[float | None]) -> torch.Tensor:
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)
