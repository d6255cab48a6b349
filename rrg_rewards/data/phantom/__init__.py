"""Synthetic chest-CT studies: patients, findings, report wording, image features and injected errors."""
