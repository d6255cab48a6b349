"""Command line: thin, one file a command.

A command is a module here with a function ``add_command(commands)`` that adds its parser, and one line in
``main.COMMANDS``. Commands import what they work with when they run, so that help is instant.
"""
