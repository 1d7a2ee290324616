"""What the benches write into documents: a part between two marks, `<!-- bench: NAME -->` and its end."""

import re
import sys


def publish(document, name, text):
    """Puts the text into the document between the two marks of this name."""
    with open(document, encoding="utf-8") as file:
        before = file.read()
    begin, end = f"<!-- bench: {name} -->", f"<!-- /bench: {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    after, count = pattern.subn(lambda _: f"{begin}\n{text}\n{end}", before)
    if count != 1:
        sys.exit(f"{document} has {count} times {begin} and {end}")
    with open(document, "w", encoding="utf-8") as file:
        file.write(after)
