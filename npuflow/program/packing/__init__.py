"""Several programs in one file that share external memory."""
