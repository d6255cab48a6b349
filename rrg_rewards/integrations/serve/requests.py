"""Requests and replies in the forms that trainers use, one dialect per path, and errors without report text."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rrg_rewards.integrations.common.background import ExitError
from rrg_rewards.integrations.common.columns import read_row
from rrg_rewards.integrations.common.transcripts import completion_after_prompt, first_exchange
from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.rewards.completions import Completion, opened_reasoning


class Sample(NamedTuple):
    """A completion with its values of the columns that the reward reads, and the tag of reasoning in its prompt."""

    completion: Completion
    columns: Mapping[str, Any]
    opened: str = ""


class ScoredSample(NamedTuple):
    """The reward of a completion.

    Args:
        reward: The reward; ``None`` if the completion is unscorable.
        scores: Sub-scores by name; ``None`` for those that are undefined.
        failure: Kind of the failure of the judge, if it failed.
    """

    reward: float | None
    scores: Mapping[str, float | None]
    failure: str | None

    @property
    def outcome(self) -> str:
        """``scored``, ``unscorable``, or ``failed_`` with the kind of failure."""
        if self.reward is not None:
            return "scored"
        return "unscorable" if self.failure is None else f"failed_{self.failure}"


class RequestError(Exception):
    """A request that gets no reward.

    Args:
        status: HTTP status.
        message: What is wrong and what to do, without text of the request.
        headers: Further headers of the reply.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def busy(message: str) -> RequestError:
    """Return the error of a request that the client should repeat after a second."""
    return RequestError(429, message, {"Retry-After": "1"})


def error_place(error: BaseException) -> str:
    """Describe an error by its type and its line of code, because its message may quote a report.

    Example:
        >>> try:
        ...     raise ValueError("No effusion.")
        ... except ValueError as error:
        ...     error_place(error)
        'ValueError in <module> (...:2)'
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    return f"{type(error).__name__} in {frames[-1].name} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def scoring_error(row: int, error: Exception) -> RequestError:
    """Return the error of a completion that the reward could not process.

    A ``ValueError`` or ``TypeError`` means that the reward refuses the input, such as an age that is no number.
    """
    refused = isinstance(error, ValueError | TypeError)
    failure = "the reward refuses the values of" if refused else "the reward failed on"
    raised = error.__cause__ if isinstance(error, ExitError) and error.__cause__ else error
    return RequestError(422 if refused else 500, f"{failure} completion {row}: {error_place(raised)}")


@dataclass(frozen=True)
class Dialect:
    """The form of requests and replies of a path.

    Args:
        path: Path of the URL.
        parse: Returns the samples of a request.
        render: Returns the reply.
        carries_null: Whether the reply can carry null for an unscorable completion. Otherwise the server needs a
            reward for it.
    """

    path: str
    parse: Callable[[Mapping[str, Any], ServerOptions], list[Sample]]
    render: Callable[[Sequence[ScoredSample], ServerOptions], Any]
    carries_null: bool = False

    def samples(self, body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
        """Return the samples of a request.

        Raises:
            RequestError: If the request lacks a field, has values of a wrong type, or is too long, or the server lacks
                a setting that the dialect needs.
        """
        if not self.carries_null and options.missing is None:
            raise RequestError(
                422,
                f"{self.path} cannot carry null for an unscorable completion: start the server with `missing`, the "
                "reward of such completions",
            )
        samples = self.parse(body, options)
        for row, sample in enumerate(samples):
            length = _num_characters([sample.completion, *sample.columns.values()])
            if length > options.max_characters:
                raise RequestError(
                    413,
                    f"completion {row} and its columns have {length} characters, more than the maximum, "
                    f"{options.max_characters} (`max_characters`)",
                )
        return samples


def _num_characters(value: Any) -> int:
    """Return the length of all texts in a value of JSON.

    Example:
        >>> _num_characters([[{"role": "assistant", "content": "Edema."}], 66])
        15
    """
    length, rest = 0, [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            length += len(one)
        elif isinstance(one, list | dict):
            rest += one.values() if isinstance(one, dict) else one
    return length


def _batch_samples(body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
    completions = _completions_field(body, "completions", options)
    for row, completion in enumerate(completions):
        if not (isinstance(completion, str) or _is_conversation(completion)):
            raise RequestError(422, f"completions[{row}] must be a text, or a list of messages with role and content")
    names = options.reward.columns
    options.reward.warn_of_unread(body)
    own = options.reference_column
    if own in names and own not in body and "reference" in body and "reference" not in names:
        # Clients need not know what the settings of the server call the references.
        body = {**body, own: body["reference"]}
    columns = {name: _equal_list_field(body, name, len(completions)) for name in names}
    prompts = _equal_list_field({"prompts": [""] * len(completions), **body}, "prompts", len(completions))
    return [
        Sample(completion, {name: columns[name][row] for name in names}, opened_reasoning(prompts[row]))
        for row, completion in enumerate(completions)
    ]


def _is_conversation(completion: Any) -> bool:
    return isinstance(completion, list) and all(
        isinstance(message, dict) and isinstance(message.get("content"), str | None) for message in completion
    )


def _batch_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    return {
        "rewards": [sample.reward for sample in scored],
        "scores": _by_name(scored),
        "failures": [sample.failure for sample in scored],
        "signature": options.reward.signature,
    }


def _by_name(scored: Sequence[ScoredSample]) -> dict[str, list[float | None]]:
    names = scored[0].scores if scored else ()
    return {name: [sample.scores[name] for sample in scored] for name in names}


def _openrlhf_samples(body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
    queries = _completions_field(body, "query", options, str)
    prompts = _equal_list_field(body, "prompts", len(queries), str)
    labels = _equal_list_field(body, "labels", len(queries))
    samples = []
    for row, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True)):
        try:
            completion = completion_after_prompt(query, prompt)
        except ValueError as error:
            raise RequestError(422, f"query[{row}]: {error}") from None
        columns = _label_columns(label, options, f"labels[{row}]")
        samples.append(Sample(completion, columns, opened_reasoning(prompt)))
    return samples


def _openrlhf_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    rewards = _numbers(scored, options)
    scores = rewards
    if options.score_range is not None:
        low, high = options.score_range
        scores = [min(max((reward - low) / (high - low), 0.0), 1.0) for reward in rewards]
    return {"rewards": rewards, "scores": scores, "extra_logs": {"scorable": _scorable(scored)}}


def _slime_samples(body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
    response = body.get("response")
    if not isinstance(response, str):
        raise RequestError(422, "response must be a text")
    if "label" not in body:
        raise RequestError(
            422,
            "the request lacks 'label', the reference or a JSON object of columns; null for a completion without one",
        )
    return [Sample(response, _label_columns(body["label"], options, "label"), opened_reasoning(body.get("prompt")))]


def _slime_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    return _numbers(scored, options)[0]


def _slime_object_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    return {**scored[0].scores, "score": _numbers(scored, options)[0], "scorable": _scorable(scored)[0]}


def _llama_factory_samples(body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
    messages = _completions_field(body, "messages", options, str)
    if options.prompts is None:
        raise RequestError(
            422,
            "/v1 receives no references: start the server with `prompts`, a table that has the prompt and the "
            f"columns {', '.join(options.reward.columns) or 'of the reward'}",
        )
    samples = []
    for row, message in enumerate(messages):
        try:
            prompt, completion = first_exchange(message)
        except ValueError as error:
            raise RequestError(422, f"messages[{row}]: {error}") from None
        if prompt not in options.prompts:
            raise RequestError(422, f"the prompt of messages[{row}] is not in the table of `prompts`")
        samples.append(Sample(completion, options.prompts[prompt]))
    return samples


def _llama_factory_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    return {"scores": _numbers(scored, options), "scorable": _scorable(scored)}


def _numbers(scored: Sequence[ScoredSample], options: ServerOptions) -> list[float]:
    assert options.missing is not None
    return [options.missing if sample.reward is None else sample.reward for sample in scored]


def _scorable(scored: Sequence[ScoredSample]) -> list[float]:
    return [float(sample.reward is not None) for sample in scored]


def _completions_field(
    body: Mapping[str, Any], name: str, options: ServerOptions, kind: type | None = None
) -> list[Any]:
    """Return the field of the completions; see :func:`_list_field`. Their number is checked first."""
    values = body.get(name)
    if isinstance(values, list) and len(values) > options.max_pending:
        raise RequestError(413, f"{len(values)} completions are more than the maximum, {options.max_pending}")
    return _list_field(body, name, kind)


def _list_field(body: Mapping[str, Any], name: str, kind: type | None = None) -> list[Any]:
    """Return a field that must be a list, optionally of values of one type.

    Raises:
        RequestError: If it is not.

    Example:
        >>> _list_field({"query": ["No effusion."]}, "query", str)
        ['No effusion.']
    """
    if name not in body:
        raise RequestError(422, f"the request lacks {name!r}, a list with a value for each completion")
    values = body[name]
    if not isinstance(values, list):
        raise RequestError(422, f"{name} must be a list, got {type(values).__name__}")
    for row, value in enumerate(values):
        if kind is not None and not isinstance(value, kind):
            raise RequestError(422, f"{name}[{row}] must be {kind.__name__}, got {type(value).__name__}")
    return values


def _equal_list_field(body: Mapping[str, Any], name: str, length: int, kind: type | None = None) -> list[Any]:
    """Return a field that must be a list of ``length`` values; see :func:`_list_field`."""
    values = _list_field(body, name, kind)
    if len(values) != length:
        raise RequestError(422, f"{name} has {len(values)} values, but the number of completions is {length}")
    return values


def _label_columns(label: Any, options: ServerOptions, where: str) -> Mapping[str, Any]:
    """Return the columns of the reward from one label: a reference, or the columns as a JSON object or in JSON.

    Args:
        label: The label.
        options: The reward.
        where: Name of the field in errors.

    Raises:
        RequestError: If the label lacks a column.
    """
    try:
        row = read_row(label, options.reference_column)
    except ValueError as error:
        raise RequestError(422, f"{where}: {error}") from None
    options.reward.warn_of_unread(row)
    for name in options.reward.columns:
        if name not in row:
            raise RequestError(
                422,
                f"{where} lacks the column {name!r}; a label must be the reference, or a JSON object of all columns",
            )
    return {name: row[name] for name in options.reward.columns}


DIALECTS = (
    Dialect("/rewards", _batch_samples, _batch_reply, carries_null=True),
    Dialect("/get_reward", _openrlhf_samples, _openrlhf_reply),
    Dialect("/remote_rm", _slime_samples, _slime_reply),
    Dialect("/remote_rm/scores", _slime_samples, _slime_object_reply),
    Dialect("/v1", _llama_factory_samples, _llama_factory_reply),
)
