"""Readers, report pairs and the phantom corpus."""
