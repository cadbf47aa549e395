"""How the config names topics: by a name, or by a ^regex, which finds topics that may not exist yet."""

import re


def compile_regex(text: str) -> re.Pattern[str]:
    """Compiles the ^regex of a topic.

    Raises:
        ValueError: The text is no regular expression, or Python cannot compile it.
    """
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:  # for a{99999999999}, and thousands of parentheses
        msg = f"{text!r} is not a regular expression: {error}"
        raise ValueError(msg) from None


def is_topic(topic: str, pattern: str) -> bool:
    """Returns whether a topic has this name, or matches this ^regex.

    Raises:
        ValueError: The regex is none; those of a config are checked when it is read.
    """
    return compile_regex(pattern).search(topic) is not None if pattern.startswith("^") else topic == pattern
