"""Records a command in a terminal and draws its last screen as SVG.

    pip install pyte
    python docs/images/record.py docs/images/train.svg target/release/tenter train

Run it in an empty directory to keep its run out of your own.
"""

import os
import pty
import sys
from xml.sax.saxutils import escape

import pyte

COLUMNS, LINES = 104, 34
COLORS = {"default": "#d8dee9", "green": "#a3be8c", "red": "#bf616a", "brown": "#ebcb8b", "cyan": "#88c0d0", "blue": "#81a1c1"}


def record(command):
    """What the terminal shows when the command has ended."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES))
        os.execvp(command[0], command)
    import fcntl, struct, termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:
            break
        if not read:
            break
        stream.feed(read)
    os.waitpid(child, 0)
    return screen


def draw(screen, prompt):
    rows = [[(prompt, "default")]]
    for y in range(LINES):
        spans = []
        for x in range(COLUMNS):
            char = screen.buffer[y][x]
            if spans and spans[-1][1] == char.fg:
                spans[-1][0] += char.data
            else:
                spans.append([char.data, char.fg])
        rows.append(spans)
    while rows and not "".join(text for text, _ in rows[-1]).strip():
        rows.pop()
    width, height = COLUMNS * 8.4 + 32, len(rows) * 18 + 32
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="ui-monospace, monospace" font-size="14">',
        f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#2e3440"/>',
    ]
    for number, spans in enumerate(rows):
        y, text, column = 28 + number * 18, "", 0
        for content, color in spans:
            if content.strip():
                fill = COLORS.get(color, COLORS["default"])
                text += f'<tspan x="{16 + column * 8.4:.1f}" fill="{fill}" textLength="{len(content.rstrip()) * 8.4:.1f}">{escape(content.rstrip())}</tspan>'
            column += len(content)
        if text:
            out.append(f'<text y="{y}" xml:space="preserve">{text}</text>')
    return "\n".join(out + ["</svg>", ""])


if __name__ == "__main__":
    path, command = sys.argv[1], sys.argv[2:]
    screen = record(command)
    prompt = "$ " + " ".join([os.path.basename(command[0]), *command[1:]])
    with open(path, "w") as file:
        file.write(draw(screen, prompt))
