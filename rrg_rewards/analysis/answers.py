"""Answers of a judge in a file: which ones the file holds, what the others cost, and their requests.

A run can be interrupted at any time. Each accepted answer is in the file already, and the next run requests the others.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic

from typing_extensions import Self

from rrg_rewards.analysis.judge_choice import JudgeSetting, choose_judge
from rrg_rewards.data.tables.appending import AppendedLines, read_whole_lines
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.judges.base import Item, Judge, JudgeFailure, JudgeTask, Message, Result
from rrg_rewards.judges.server.usage import estimated_tokens, judge_usage, money, token_cost
from rrg_rewards.utilities.processes import run_coroutine
from rrg_rewards.utilities.run_log import Progress, RunLog
from rrg_rewards.utilities.settings import SettingError

# Number of items of an immediate judge in a batch.
_BATCH = 64


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of requests, without repeated ones.

    Args:
        requests: Number of calls.
        prompt_tokens: Tokens of prompts.
        completion_tokens: Tokens of answers.
        cost: Cost of the tokens; ``None`` without a price.
        most_completion_tokens: Tokens of answers that all use up the limit, as reasoning may; ``None`` without a limit.
        most_cost: Cost with these answers; ``None`` without a price or a limit.
        judged_by: Number of different pairs by the judge of a cascade; ``None`` without one.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    most_completion_tokens: int | None = None
    most_cost: float | None = None
    judged_by: Mapping[str, int] | None = None

    def __str__(self) -> str:
        cost = "cost: unknown without a `price` in the settings of the judge"
        if self.cost is not None:
            cost = f"estimated cost: {money(self.cost)}, without repeated requests"
        judges = ", ".join(f"{name} {count:,}" for name, count in (self.judged_by or {}).items() if count)
        lines = [f"different pairs by judge: {judges}"] if judges else []
        lines += [
            f"estimated tokens: {self.prompt_tokens:,} of prompts, {self.completion_tokens:,} of answers (4 characters "
            "per token)",
            cost,
        ]
        if self.most_completion_tokens is not None:
            most = "" if self.most_cost is None else f", cost {money(self.most_cost)}"
            lines.append(
                f"if all answers use up the limit, as reasoning may: {self.most_completion_tokens:,} tokens{most}"
            )
        return "\n".join(lines)


def estimate_requests(
    prompts: Iterable[Sequence[Message]], answers: Iterable[str], known: Mapping[str, Any], runs: int = 1
) -> Estimate:
    """Estimate the cost of requests.

    Args:
        prompts: Conversations, one for each item.
        answers: A text about as long as the answer to each.
        known: Arguments of the judge: ``price``, and the limit of an answer.
        runs: Number of requests for each item.

    Example:
        >>> prompt = [{"role": "user", "content": "Clear?"}]
        >>> estimate_requests([prompt], ["Yes."], {"price": (1.0, 4.0), "max_tokens": 100}, runs=5)
        Estimate(requests=5, prompt_tokens=30, completion_tokens=25, cost=0.00013, ...)
    """
    number = once = 0
    for messages in prompts:
        number, once = number + 1, once + estimated_tokens(message["content"] for message in messages)
    requests, prompt = runs * number, runs * once
    completion = runs * sum(estimated_tokens([answer]) for answer in answers)
    price = known.get("price")
    limit = known.get("max_tokens") or (known.get("extra_body") or {}).get("max_completion_tokens")
    most = requests * limit if isinstance(limit, int) else None

    def cost(answered: int | None) -> float | None:
        return None if price is None or answered is None else token_cost(prompt, answered, 0, price)

    return Estimate(requests, prompt, completion, cost(completion), most, cost(most))


@dataclass(frozen=True)
class HeldAnswers:
    """The content of a file of answers.

    Args:
        answers: What the counts need of each answer, by the key of its item.
        judges: Signatures of the judges.
        prompts: Hashes of the prompts.
    """

    answers: Mapping[Hashable, Any] = field(default_factory=dict)
    judges: frozenset[str] = frozenset()
    prompts: frozenset[str] = frozenset()


class AnswerRun(ABC, Generic[Item, Result]):
    """Requests the answers that a file lacks, and appends each one as soon as it is accepted.

    Subclasses say what an item is, how the file names it, and what is counted.

    Args:
        task: The task.
        items: The items; equal ones are requested once.
        output: JSON lines file to append to.
        judge: The judge; ``None`` if nothing is requested.
    """

    activity: ClassVar[str]
    """Name of the run in its progress."""
    noun: ClassVar[str]
    """Name of the items."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Keys that each line of the file must have, beside ``judge`` and ``prompt_hash``."""

    def __init__(
        self, task: JudgeTask[Item, Result], items: Sequence[Item], output: str | Path, judge: Judge | None = None
    ) -> None:
        self.task = task
        self.items = list(dict.fromkeys(items))
        self.output = output
        self.judge = judge
        self.written = 0
        """Number of answers that this run has appended."""
        self.failures: Counter[str] = Counter()
        """Failed items, by kind of failure."""
        self.reasons: dict[str, str] = {}
        """Reason of the first failure of each kind."""
        self._content: tuple[HeldAnswers, list[Item]] | None = None

    @property
    def held(self) -> HeldAnswers:
        """The content of the file before the run. The file need not exist.

        Raises:
            TableError: If the file has other content.
        """
        return self._read()[0]

    @property
    def missing(self) -> list[Item]:
        """The items whose answers the file lacked before the run."""
        return self._read()[1]

    def _read(self) -> tuple[HeldAnswers, list[Item]]:
        if self._content is None:
            held = self._read_held()
            self._content = held, [item for item in self.items if self._key(item) not in held.answers]
        return self._content

    @property
    def num_held(self) -> int:
        """Number of items whose answers the file held before the run."""
        return len(self.items) - len(self.missing)

    @property
    def exit_code(self) -> int:
        """Exit code of a command: 1 if all requests failed, otherwise 0."""
        return 0 if self.written or not self.missing else 1

    @abstractmethod
    def _key(self, item: Item) -> Hashable:
        """Return what identifies an item in the file."""

    def _read_held(self) -> HeldAnswers:
        """Read the file, which need not exist."""
        table = read_whole_lines(self.output)
        if table is None:
            return HeldAnswers()
        if missing := [name for name in (*self.columns, "judge", "prompt_hash") if name not in table.columns]:
            names = ", ".join(missing)
            raise TableError(f"{self.output}: exists, but is not an output of this command: it lacks {names}")
        judges, prompts = (frozenset(map(str, table.columns[name])) for name in ("judge", "prompt_hash"))
        return HeldAnswers(self._answers(table), judges, prompts)

    def _answers(self, table: Table) -> Mapping[Hashable, Any]:
        """Return the answers of the file, by the key of their item; used by the default :meth:`_read_held`."""
        raise NotImplementedError

    def _check(self) -> None:
        """Raise a :class:`TableError` for the first invalid line of the file, which is not empty."""

    @abstractmethod
    def _record(self, item: Item, result: Result) -> Mapping[str, Any]:
        """Return the line of an answer, to which its origin is added."""

    def _origin(self, judge: Judge) -> Mapping[str, Any]:
        return {"judge": judge.signature, "prompt_hash": self.task.prompt_hash}

    def _count(self, item: Item, result: Result) -> None:
        """Count an answer that is in the file."""

    @abstractmethod
    def _expected_answer(self, item: Item) -> str:
        """Return a text about as long as the answer."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the counts of the run."""

    def plan(self) -> dict[str, Any]:
        """Return the numbers of all items and of those to request."""
        return {"prompt_hash": self.task.prompt_hash, "pairs": len(self.items), "to_ask": len(self.missing)}

    def describe(self) -> str:
        """Return these numbers in a line of text."""
        return f"pairs: {len(self.items)}; in the output: {self.num_held}; to request: {len(self.missing)}"

    def estimate(self) -> Estimate:
        """Estimate the cost of the missing answers, by the prices of the judge; nothing is sent."""
        known = {} if self.judge is None else self.judge.arguments()
        prompts = map(self.task.messages, self.missing)
        answers = map(self._expected_answer, self.missing)
        return estimate_requests(prompts, answers, known)

    def preview(self) -> str:
        """Return the conversation about the first missing item as text; empty if nothing is missing."""
        messages = self.task.messages(self.missing[0]) if self.missing else []
        return "\n".join(f"--- {message['role']}\n{message['content']}\n" for message in messages)

    def request(self, log: RunLog | None = None) -> None:
        """Request the missing answers.

        A ``KeyboardInterrupt`` cancels the running calls; the accepted answers are in the file.

        Args:
            log: Receives notes, warnings and progress.

        Raises:
            SettingError: If the run has no judge.
            TableError: If the file has other content, or another process appends to it.
        """
        log = log or RunLog()
        if self.judge is None:
            raise SettingError("judge", "is required")
        with AppendedLines(self.output) as lines:
            # The file could change before it was locked.
            self._content = None
            if self.held.answers:
                self._check()
            self._warn_of_others(log)
            if self.missing:
                _note_destination(self.judge, self._sent(), log)
            judge, origin = self.judge, self._origin(self.judge)
            with log.progress(self.activity) as progress:
                progress(0, len(self.missing))

                def keep(item: Item, result: Result) -> None:
                    lines.append({**self._record(item, result), **origin})
                    self._count(item, result)
                    self.written += 1
                    progress(1, 0)

                self._evaluate(judge, self.missing, keep)

    def complete(self, log: RunLog | None) -> Self:
        """Request the answers that the file lacks, log the outcome, and return this run."""
        log = log or RunLog()
        self.request(log)
        self.log_outcome(log)
        return self

    def _warn_of_others(self, log: RunLog) -> None:
        """Warn about answers in the file that come from another judge or prompt."""
        if others := {*self.held.judges} - {"" if self.judge is None else self.judge.signature}:
            log.warn(f"the output also contains reports of another judge: {min(others)}")
        if {*self.held.prompts} - {self.task.prompt_hash}:
            log.warn("the output also contains reports written with other instructions, criteria or package versions")

    def _sent(self) -> str:
        """Return what is sent, in words."""
        return f"{len(self.missing)} {self.noun}"

    def _evaluate(self, judge: Judge, items: Sequence[Item], keep: Callable[[Item, Result], None]) -> None:
        """Evaluate items. An immediate judge, which has no answers, evaluates in batches."""
        keeper = _Keeper(self.task, keep)
        size = _BATCH if judge.is_immediate else max(1, len(items))
        for start in range(0, len(items), size):
            batch = items[start : start + size]
            for item, result in zip(batch, keeper.ask(judge, batch), strict=True):
                if isinstance(result, JudgeFailure):
                    self.failures[result.kind] += 1
                    self.reasons.setdefault(result.kind, result.reason)
                else:
                    keeper.keep(item, result)

    @property
    def usage(self) -> dict[str, Any] | None:
        """The calls, tokens and cost of a judge with a server; ``None`` for others."""
        usage = judge_usage(self.judge)
        return None if usage is None else asdict(usage)

    def _outcome(self) -> dict[str, Any]:
        """Return what :meth:`to_dict` of every run contains."""
        return {"failures": dict(self.failures), "reasons": self.reasons, "usage": self.usage}

    def log_outcome(self, log: RunLog) -> None:
        """Note the usage of the judge and the number of missing answers, and warn of the failures."""
        if (usage := judge_usage(self.judge)) is not None:
            log.note(str(usage))
        for kind, count in self.failures.items():
            log.warn(f"{count} failed with {kind}; the first: {self.reasons[kind]}")
        if unanswered := self.failures.total():
            log.note(f"{unanswered} {self.noun} are missing; repeat the command to request them")


class _Keeper(Generic[Item, Result]):
    """Keeps each result when its answer is parsed, because a judge returns results only at the end.

    Args:
        task: The task.
        keep: Function that keeps an item and its result.
    """

    def __init__(self, task: JudgeTask[Item, Result], keep: Callable[[Item, Result], None]) -> None:
        self._parse = task.parse
        self._keep = keep
        self._kept: set[Item] = set()
        self._is_over = False
        # A copy, so that a judge sees the class and the attributes of the task.
        self._task = copy(task)
        self._task.parse = self._parse_and_keep  # type: ignore[method-assign]

    def keep(self, item: Item, result: Result) -> None:
        """Keep a result, unless one of the item is kept. A judge may return results without a text to parse."""
        if item not in self._kept:
            self._kept.add(item)
            self._keep(item, result)

    def ask(self, judge: Judge, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Let a judge evaluate items; if that is interrupted, no further result is kept."""
        if not judge.is_immediate:
            return run_coroutine(self._evaluate(judge, items))
        return judge.evaluate_now(self._task, items)

    async def _evaluate(self, judge: Judge, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        try:
            return await judge.evaluate(self._task, items)
        finally:
            # A judge with a model in this process generates in a thread, which nothing but an error ends.
            self._is_over = True

    def _parse_and_keep(self, item: Item, answer: str) -> Result:
        if self._is_over:
            raise RuntimeError("the run was interrupted")
        result = self._parse(item, answer)
        self.keep(item, result)
        return result


def distinct_items(items: Sequence[Item | None], noun: str, lacks: str, log: RunLog) -> list[Item]:
    """Return the different items of a table, and say how many are left out.

    Args:
        items: The items; ``None`` for those that are left out.
        noun: Name of the items, for messages.
        lacks: Why items are left out.
        log: Receives a warning and a note.

    Example:
        >>> distinct_items(["Edema.", "Clear.", "Edema."], "reports", "are blank", RunLog())
        ['Edema.', 'Clear.']
    """
    complete = [item for item in items if item is not None]
    different = list(dict.fromkeys(complete))
    if len(complete) < len(items):
        log.warn(f"{len(items) - len(complete)} of {len(items)} {noun} {lacks}, and are left out")
    if len(different) < len(complete):
        log.note(f"{len(complete) - len(different)} {noun} are duplicates and count once")
    return different


def choose_model(judge: JudgeSetting, lacks: str) -> Judge:
    """Return a judge that is a language model.

    Args:
        judge: The judge.
        lacks: Why the judge must be a language model, for messages, such as ``writes no reports``.

    Raises:
        SettingError: If the judge is unknown, its settings are invalid, or it is no language model.
    """
    chosen = choose_judge(judge)
    if chosen.is_immediate or chosen.task_names is not None:
        name = chosen.signature if isinstance(judge, Judge) else judge
        raise SettingError("judge", f"{name} {lacks}; name a language model, as in openai:MODEL")
    return chosen


def _note_destination(judge: Judge, content: str, log: RunLog) -> None:
    """Name the machine to which ``content`` is sent, if it is not this one."""
    address = getattr(judge, "address", None)
    if address is not None and not address.is_loopback:
        log.note(f"{content} are sent to {address.host}, as allow_remote permits")


def evaluate_in_batches(
    judge: Judge, task: JudgeTask[Item, Result], items: Sequence[Item], batch_size: int, progress: Progress
) -> list[Result | JudgeFailure]:
    """Evaluate items, at most ``batch_size`` at a time, and report progress.

    The ``batch_deadline`` of the judge applies to each batch.

    Args:
        judge: The judge.
        task: The task.
        items: ``N`` items.
        batch_size: Maximum number of items in a batch.
        progress: Function that :meth:`RunLog.progress` yields.

    Returns:
        ``N`` results.
    """

    async def evaluated() -> list[Result | JudgeFailure]:
        results: list[Result | JudgeFailure] = []
        for start in range(0, len(items), batch_size):
            batch = items[start : start + batch_size]
            judged = await judge.evaluate(task, batch)
            results += judged
            progress(len(batch), 0)
        return results

    progress(0, len(items))
    return run_coroutine(evaluated())
