"""Training of learned metrics with Lightning: data sources, modules, search and reports."""
