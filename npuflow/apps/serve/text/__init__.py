"""Text of language models over HTTP, by OpenAI's protocol of completions."""
