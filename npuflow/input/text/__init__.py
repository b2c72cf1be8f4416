"""Text as tokens of a language model: windows of running text, and questions with continuations."""
