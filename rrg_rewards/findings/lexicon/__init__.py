"""YAML lexicons of the finding engine."""
