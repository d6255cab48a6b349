"""Recipes that train CT-CHAT 8B on CT-RATE, and a mini CT-CHAT on phantom volumes."""
