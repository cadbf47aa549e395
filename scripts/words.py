"""Counts pronouns in zync's names, comments and docstrings, in 100 lines: `python scripts/words.py`.

A name says what it holds (`row`, `table`, `missing_topics`), a docstring names its subject. Prints the folders, the
highest count first. `--check` prints them only if zync has more than MOST, and then exits 1.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

WORDS = {"one", "found", "there", "said", "mine", "gone"}
MOST = 1.5
ROOT = Path(__file__).parents[1]


def words_in(source: str) -> int:
    """Returns the number of WORDS in a module's identifiers (parts of a name count), comments and docstrings."""
    docstrings = {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    count = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            count += sum(part in WORDS for part in token.string.lower().split("_"))
        elif token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.start in docstrings):
            count += sum(word.lower() in WORDS for word in re.findall("[A-Za-z]+", token.string))
    return count


def main(arguments: list[str]) -> int:
    """Prints the counts by folder, the highest first, and of all; 1 if there are too many to pass a check."""
    counts, lines = Counter[str](), Counter[str]()
    for path in sorted((ROOT / "zync").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        folder = "/".join(path.relative_to(ROOT).parts[:-1][:2])
        counts[folder] += words_in(source)
        lines[folder] += len(source.splitlines())
    density = counts.total() * 100 / lines.total()
    if arguments == ["--check"] and density <= MOST:
        return 0
    for folder in sorted(lines, key=lambda name: -counts[name] / max(lines[name], 1)):
        print(f"{counts[folder] * 100 / max(lines[folder], 1):6.2f} in 100 lines  {folder} ({lines[folder]:,} lines)")
    print(f"{density:6.2f} in 100 lines of all {lines.total():,}; at most {MOST}")
    return int(density > MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
