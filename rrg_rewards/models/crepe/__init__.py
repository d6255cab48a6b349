"""CREPE: an encoder that counts the errors of a report by category."""
