"""A command tool: JSON on stdin, JSON on stdout, paths as the place where it runs has them."""

import json
import os
import pwd
import sys


def system():
    with open("/etc/os-release", encoding="utf-8") as release:
        names = dict(line.rstrip("\n").split("=", 1) for line in release if "=" in line)
    return f"{names.get('PRETTY_NAME', '?').strip(chr(34))} on {os.uname().nodename}"


def main():
    path = json.load(sys.stdin)["path"]
    print(f"describe.py was given {path}", file=sys.stderr)
    with open(path, encoding="utf-8") as file:
        lines = sum(1 for _ in file)
    user = pwd.getpwuid(os.getuid()).pw_name
    json.dump({"path": os.path.abspath(path), "lines": lines, "system": system(), "user": user}, sys.stdout)


main()
