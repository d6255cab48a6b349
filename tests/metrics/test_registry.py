"""Metrics by name."""

from importlib import import_module

import pytest

from rrg_rewards.metrics import ReportMetric, registry


@pytest.mark.parametrize("name", registry._METRICS)
def test_make_metric_every_name_leads_to_a_report_metric(name):
    module, _, cls = registry._METRICS[name].partition(":")
    assert issubclass(getattr(import_module(module), cls), ReportMetric)
    assert "kwargs" not in registry.metric_maker(name).options
    assert isinstance(registry.metric_maker(name).context, tuple)


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
