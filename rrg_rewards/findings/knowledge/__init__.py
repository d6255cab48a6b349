"""What the words around a finding mean, and what findings mean to each other and to a patient: YAML data."""
