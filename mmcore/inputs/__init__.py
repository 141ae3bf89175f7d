"""Prompts and media become prepared requests: on the CPU, off the step loop, without torch."""

from mmcore.inputs.prompt import TextPrompt, TokensPrompt

__all__ = ["TextPrompt", "TokensPrompt"]
