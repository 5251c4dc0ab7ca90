#!/usr/bin/env python3
"""Runs a command in a pseudo-terminal and writes what it prints as an SVG image.

    tools/images/record.py OUT.svg COLUMNS SHOWN_COMMAND -- PROGRAM ARGUMENT...

The image has the text, colours and layout of the real output; nothing is added but the prompt with SHOWN_COMMAND. It needs
only the standard library. It does not animate: the image is the screen at the end.
"""

import os
import pty
import re
import sys
from xml.sax.saxutils import escape

FONT_SIZE = 14
CELL_WIDTH = 8.43  # pixels; textLength makes any monospace font fit
LINE_HEIGHT = 20
MARGIN = 18
BAR_HEIGHT = 32

BACKGROUND = "#0d1117"
BAR = "#161b22"
FOREGROUND = "#c9d1d9"
COLOURS = {
    30: "#484f58", 31: "#ff7b72", 32: "#56d364", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#56d4dd", 37: "#c9d1d9",
    90: "#8b949e", 91: "#ffa198", 92: "#7ee787", 93: "#f2cc60", 94: "#a5d6ff", 95: "#e2c5ff", 96: "#76e3ea", 97: "#f0f6fc",
}


def run(arguments, columns):
    """The output of the command on a terminal of so many columns."""
    environment = dict(os.environ, COLUMNS=str(columns), TERM="xterm-256color", LANG="C.UTF-8", LC_ALL="C.UTF-8")
    environment.pop("NO_COLOR", None)
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(arguments[0], arguments, environment)
    output = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux reports the closed terminal as an error
            break
        if not chunk:
            break
        output += chunk
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status != 0:
        sys.exit(f"{' '.join(arguments)} exited with status {status}")
    return output.decode()


def parts(line):
    """Pieces of one line as (column, text, colour, is_bold)."""
    column, colour, bold, dim = 0, None, False, False
    for piece in re.split(r"(\x1b\[[0-9;?]*[A-Za-z])", line):
        if not piece.startswith("\x1b"):
            if piece:
                yield column, piece, COLOURS[90] if dim and colour is None else colour, bold
                column += len(piece)
            continue
        if not piece.endswith("m"):
            continue
        for code in [int(number or 0) for number in piece[2:-1].split(";")]:
            if code == 0:
                colour, bold, dim = None, False, False
            elif code == 1:
                bold = True
            elif code == 2:
                dim = True
            elif code == 22:
                bold = dim = False
            elif code == 39:
                colour = None
            elif code in COLOURS:
                colour = COLOURS[code]


def words(line):
    """The pieces without runs of blanks, which SVG would collapse."""
    for column, text, colour, bold in parts(line):
        for word in re.finditer(r"\S+(?: \S+)*", text):
            yield column + word.start(), word.group(), colour, bold


def svg(lines, columns, title):
    width = round(columns * CELL_WIDTH + 2 * MARGIN)
    height = BAR_HEIGHT + len(lines) * LINE_HEIGHT + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">',
        f'<rect width="{width}" height="{height}" rx="10" fill="{BACKGROUND}"/>',
        f'<path d="M0 {BAR_HEIGHT}V10a10 10 0 0 1 10-10H{width - 10}a10 10 0 0 1 10 10V{BAR_HEIGHT}Z" fill="{BAR}"/>',
    ]
    for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        out.append(f'<circle cx="{20 + 20 * number}" cy="{BAR_HEIGHT // 2}" r="6" fill="{colour}"/>')
    out.append(
        f'<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,\'DejaVu Sans Mono\',monospace" font-size="{FONT_SIZE}" '
        f'fill="{FOREGROUND}">'
    )
    for number, line in enumerate(lines):
        y = BAR_HEIGHT + MARGIN + number * LINE_HEIGHT + FONT_SIZE
        for column, text, colour, bold in words(line):
            style = (f' fill="{colour}"' if colour else "") + (' font-weight="bold"' if bold else "")
            out.append(
                f'<text x="{MARGIN + column * CELL_WIDTH:.1f}" y="{y}" textLength="{len(text) * CELL_WIDTH:.1f}" '
                f'lengthAdjust="spacingAndGlyphs"{style}>{escape(text)}</text>'
            )
    out.append("</g></svg>")
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) < 6 or sys.argv[4] != "--":
        sys.exit(__doc__)
    target, columns, shown = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    output = run(sys.argv[5:], columns).replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    lines = [f"\x1b[92m$\x1b[0m \x1b[1m{shown}\x1b[0m"] + [line.rstrip() for line in output.split("\n")]
    used = max(len(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)) for line in lines)
    with open(target, "w", encoding="utf-8") as file:
        file.write(svg(lines, used, f"Output of {shown}"))


if __name__ == "__main__":
    main()
