"""Text from language models that a runner runs, token by token."""

from npuflow.runner.text.generator import TextGenerator as TextGenerator
from npuflow.runner.text.generator import TextStream as TextStream
from npuflow.runner.text.generator import TextTokenizer as TextTokenizer
from npuflow.runner.text.sampling import TokenSampling as TokenSampling
