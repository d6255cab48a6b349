"""Command line, with one module per command.

A command is a module in this folder with a function ``add_command(commands)`` that adds its parser, and a name in
``main.COMMANDS``. Commands import heavy packages when they run, so that ``--help`` is fast.
"""
