"""Question schemas as YAML files."""
