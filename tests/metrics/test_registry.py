"""Metrics by name."""

from importlib import import_module

import pytest

from rrg_rewards.metrics import ReportCRG, ReportMetric, registry
from rrg_rewards.rewards import make_reward


@pytest.mark.parametrize("name", registry._METRICS)
def test_make_metric_every_name_leads_to_a_report_metric(name):
    module, _, cls = registry._METRICS[name].partition(":")
    assert issubclass(getattr(import_module(module), cls), ReportMetric)
    assert "kwargs" not in registry.metric_maker(name).options
    assert isinstance(registry.metric_maker(name).context, tuple)


def length_gap(predictions, references):
    return [abs(len(a) - len(b)) for a, b in zip(predictions, references, strict=True)]


def test_register_metric_names_a_function_or_a_class(monkeypatch):
    monkeypatch.setattr(registry.METRICS, "_added", {})
    for ask in (registry.make_metric, make_reward):
        with pytest.raises(
            ValueError, match=r"unknown \w+ 'gap'.*call register_metric\(name, function\).*module:function"
        ):
            ask("gap")
        with pytest.raises(TypeError, match=r"must be a text, got .*MetricReward\(metric\).*register_metric\(name"):
            ask(length_gap)
    registry.register_metric("gap", length_gap)
    registry.register_metric("mine", ReportCRG)
    assert registry.make_metric("gap").score(["ab"], ["a"]).value.tolist() == [1]
    assert make_reward("gap", higher_is_better=False)(["ab"], reference=["a"]) == [-1]
    assert make_reward("mine", prior=0.2)(["Cardiomegaly."], reference=["Normal."])[0] < 0
    assert {"gap", "mine"} <= {*registry.available_metrics()}
    for name, message in (("crg", "metric 'crg' exists already"), ("my gap", "must be a word")):
        with pytest.raises(ValueError, match=message):
            registry.register_metric(name, length_gap)
    with pytest.raises(TypeError, match="must be a function of predictions and references"):
        registry.register_metric("three", 3)
    registry.register_metric("format", length_gap)
    with pytest.raises(ValueError, match="reward 'format' exists already; register the metric under another name"):
        make_reward("format")


def test_make_metric_an_unknown_metric_names_the_nearest():
    for ask in (registry.make_metric, registry.metric_maker):
        with pytest.raises(ValueError, match=r"unknown metric 'CRG'. Known: .*crg|unknown metric 'CRG'; did you mean"):
            ask("CRG")


def test_make_metric_an_option_that_a_metric_does_not_take_names_those_it_does():
    with pytest.raises(
        ValueError,
        match=r"unknown crg option 'labeller'; did you mean 'labeler'\? Known: average, labeler, level_schema, levels, "
        r"min_prevalence, prior",
    ):
        registry.make_metric("crg", labeller="rules:ct_rate")
