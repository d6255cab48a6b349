"""A language model behind an OpenAI-compatible server as a judge."""

import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from rrg_rewards.judges.base import Item, Judge, JudgeFailure, JudgeTask, Result
from rrg_rewards.judges.server.cache import LOCK_SECONDS, AnswerCache
from rrg_rewards.judges.server.client import ChatClient
from rrg_rewards.judges.server.evaluation import Evaluation
from rrg_rewards.judges.server.requests import hash_json
from rrg_rewards.judges.server.settings import ServerSettings
from rrg_rewards.judges.server.usage import Usage
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.signature import format_signature

__all__ = ["OpenAIJudge"]


class OpenAIJudge(Judge):
    """Judge with a language model behind an OpenAI-compatible server, such as vLLM, SGLang, llama.cpp or a cloud API.

    **Failures.** An item without a valid answer gets a :class:`JudgeFailure` of kind ``deadline``, ``connection``,
    ``status`` (refused by the server), or ``malformed`` or ``inconsistent`` (rejected by the task). Other exceptions of
    the task are raised.

    **Retries.** A call is retried after HTTP 408, 409, 425, 429 and 5xx, time-outs and broken connections. The pause
    before a retry grows, or is the server's ``Retry-After``, which pauses all calls of the batch. Other statuses are
    final. While the server answers no call, further items get one attempt each; after twice ``concurrency`` items (at
    least 8) without an answer, the rest of the batch fails. After an answer that the task rejects, another is requested
    with the next seed and a temperature of at least 0.5, because at 0 the seed has no effect.

    **Rate limits.** ``requests_per_minute`` and ``tokens_per_minute`` apply to all calls of this object, including
    retries (:class:`rrg_rewards.judges.server.rate_limit.RateLimiter`). A copy in another process has its own limits.

    **No repeated calls.** Equal items are evaluated once, also by evaluations that run at the same time in one event
    loop. ``cache`` stores accepted answers under a hash of the conversation, the task, the model and the settings of
    sampling. The task checks cached answers again.

    A cache that cannot be opened, read or written is as good as none; the judge warns once.

    **Privacy.** Report text is sent only to ``base_url``, which must be on this machine unless ``allow_remote`` is set.
    Redirects are not followed, and proxies from the environment are not used for loopback addresses. Messages,
    signatures and pickles contain neither keys nor report text.

    Args:
        model: Name of the model on the server.
        options: Further fields of :class:`rrg_rewards.judges.server.settings.ServerSettings`, such as ``base_url``,
            ``concurrency``, ``cache`` and ``batch_deadline``.

    Raises:
        ValueError: If the address is not a plain HTTP address, or is on another machine without ``allow_remote``; if
            another argument is out of its range.
        TypeError: For an unknown argument, with the nearest known one.
        ModuleNotFoundError: When evaluating, if openai or diskcache is not installed, naming the pip command.

    Example:
        >>> judge = OpenAIJudge("medgemma-4b", base_url="http://localhost:8000/v1", concurrency=64)
        >>> judge.signature
        'openai|model:medgemma-4b|host:loopback|temperature:0.0|max_tokens:2048|seed:0|response_format:auto|...'
        >>> judge.usage.calls
        0
        >>> OpenAIJudge("gpt", base_url="https://api.example.org/v1")
        Traceback (most recent call last):
        ...
        ValueError: base_url is on another machine, 'api.example.org', ... pass allow_remote=True
    """

    # For help() and inspect.signature().
    __signature__ = inspect.signature(ServerSettings)

    def __init__(self, model: str, **options: Any) -> None:
        settings = ServerSettings.from_options(model=model, **options)
        self._set(settings, ChatClient(settings))

    def _set(self, settings: ServerSettings, client: ChatClient) -> None:
        self.settings = settings
        self.model = settings.model
        self.address = self.settings.address
        self.concurrency = self.settings.concurrency
        self.timeout = self.settings.timeout
        self._client = client
        self._reruns: dict[int, OpenAIJudge] = {}

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge, without its key."""
        return self.settings.arguments()

    @property
    def signature(self) -> str:
        """Model, host unless it is this machine, and settings of sampling."""
        settings = self.settings
        extra: dict[str, Any] = {"extra_body": hash_json(settings.extra_body)[:8]} if settings.extra_body else {}
        extra |= {"run": settings.run} if settings.run else {}
        return format_signature(
            "openai",
            model=settings.model,
            host="loopback" if settings.address.is_loopback else settings.address.host,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            seed=settings.seed,
            response_format=settings.response_format,
            **extra,
        )

    @property
    def usage(self) -> Usage:
        """Calls, tokens, cost and failures since the judge was made. An unpickled copy starts at 0."""
        return self._client.usage.usage()

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """See :meth:`rrg_rewards.judges.Judge.evaluate`."""
        # Raise before any call, and even if there are no items.
        require("openai", extra="judge")
        return await Evaluation(task, items, self._client, self._cache).run()

    def rerun(self, run: int) -> "OpenAIJudge":
        """Return this judge with the seed and the cache entries of another run, and the same limits and counters.

        Raises:
            ValueError: If the temperature is 0, at which each run would request the same answer.
        """
        if run == 0:
            return self
        if self.settings.temperature == 0:
            raise ValueError("runs at temperature 0 request the same answer; set temperature, such as 0.7, or None")
        if run not in self._reruns:
            settings = replace(self.settings, run=self.settings.run + run)
            # The constructor would make limits and counters of its own.
            judge = OpenAIJudge.__new__(OpenAIJudge)
            judge._set(settings, self._client.with_settings(settings))
            self._reruns[run] = judge
        return self._reruns[run]

    def stop(self) -> None:
        """See :meth:`rrg_rewards.judges.Judge.stop`."""
        super().stop()
        self._client.stop()

    @cached_property
    def _cache(self) -> AnswerCache | None:
        settings = self.settings
        if settings.cache is None:
            return None
        # The cache waits for a lock at most once in an evaluation.
        deadline = math.inf if settings.batch_deadline is None else settings.batch_deadline
        lock_seconds = min(LOCK_SECONDS, deadline / 10)
        return AnswerCache(settings.cache, size_limit=settings.cache_size_limit, lock_seconds=lock_seconds)
