"""The package in other frameworks. Import each module by its own name, as its framework requires."""

__all__: list[str] = []
