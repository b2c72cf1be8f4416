"""From a quantised graph and its plan to the commands of a program."""
