"""YAML data on attributes, concepts, clinical significance, measurements, errors and wording."""
