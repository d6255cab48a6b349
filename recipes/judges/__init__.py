"""Settings of judges, for ``--judge`` and ``judge:`` in YAML files."""
