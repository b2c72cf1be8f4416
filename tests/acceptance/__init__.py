"""What the documentation promises, tested on the installed wheel."""
