"""Command line, with one module per command.

A command is a module in this folder with a function ``add_command(commands, summary)`` that adds its parser, and a line
in ``main.COMMANDS``. It translates its options into settings, calls a function of a lower layer, and shows the result.
Commands import heavy packages when they run, so that ``--help`` is fast.
"""
