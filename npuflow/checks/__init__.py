"""What a build compares: reference, program, QDQ model, source model, and a board."""
