"""Synthetic chest-CT studies: patients, findings, report wording and image features."""
