"""One stage per file; the only place where the two columns meet."""
