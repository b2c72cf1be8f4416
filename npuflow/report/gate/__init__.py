"""What a build is judged by beside an earlier one: its headline figures, and which became worse."""
