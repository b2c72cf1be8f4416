"""The recipe's [data]: which samples there are, how they are read, and what the model is fed."""
