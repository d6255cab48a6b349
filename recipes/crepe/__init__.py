"""Recipes that train CREPE, an encoder that counts errors."""
