"""The schedule of a plan: which jobs run on which queue of which core, what each
reads and writes, and when."""
