"""A command tool: it makes a report and a picture of a table, and says where they are.

    report.py FOLDER < {"table": "/path/of/a.csv"}

It knows one world, that of the place where it runs: it opens the path that it is given, and answers with paths of its own. That the caller
lives elsewhere is not its business. Nothing beyond Python itself is needed: a PNG is written by hand.
"""

import csv
import json
import os
import struct
import sys
import zlib

BAR, GAP, HEIGHT = 40, 16, 200
WHITE, BLUE = bytes((255, 255, 255)), bytes((46, 110, 176))


def read_table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [(row["month"], int(row["amount"])) for row in csv.DictReader(file)]


def report(rows):
    lines = ["# Sales", "", "| month | amount |", "|---|--:|"]
    lines += [f"| {month} | {amount} |" for month, amount in rows]
    best, _ = max(rows, key=lambda row: row[1])
    lines += ["", f"Together {sum(amount for _, amount in rows)}; the best month was {best}.", ""]
    return "\n".join(lines)


def bars(rows):
    """The picture as lines of pixels, three bytes each: one bar for each row, as high as its share of the highest."""
    highest = max(amount for _, amount in rows)
    heights = [amount * HEIGHT // highest for _, amount in rows]
    for y in range(HEIGHT, 0, -1):
        yield WHITE * GAP + b"".join((BLUE if y <= height else WHITE) * BAR + WHITE * GAP for height in heights)


def png(lines):
    lines = list(lines)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(lines[0]) // 3, len(lines), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + line for line in lines))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def main():
    folder = os.path.abspath(sys.argv[1])
    rows = read_table(json.load(sys.stdin)["table"])
    os.makedirs(folder, exist_ok=True)
    answer = {"report": os.path.join(folder, "report.md"), "picture": os.path.join(folder, "chart.png"), "rows": len(rows)}
    with open(answer["report"], "w", encoding="utf-8") as file:
        file.write(report(rows))
    with open(answer["picture"], "wb") as file:
        file.write(png(bars(rows)))
    json.dump(answer, sys.stdout)


main()
