#!/bin/bash
# Records what tools print in a container whose workspace, /workspace, is another folder of the host: the "printed" part of the texts
# beside this file. The tools are those of this machine: the container sees /usr, and what TOOLS names, through read-only mounts.
#
#   TOOLS="$HOME/.cargo $HOME/.rustup" ESLINT=/tmp/eslint ./record.sh IMAGE [NAME...]
#
# IMAGE is one with the same C library; in ESLINT "npm install eslint" was done. "go test ./pathmapper -run Corpus -update" makes the "rewritten" parts anew.
set -euo pipefail
cd "$(dirname "$0")"
image=$1
shift
only=" $* "
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mounts=(-v /usr:/usr:ro -v "$work:/workspace" -v "${ESLINT:-/var/empty}:/opt/eslint:ro")
for folder in ${TOOLS:-}; do mounts+=(-v "$folder:$folder:ro"); done

# record NAME COMMAND: what a shell in the workspace prints on both streams. A tool that fails is what most of this is about.
record() {
  [[ $only == "  " || $only == *" $1 "* ]] || return 0
  {
    printf '$ %s\n-- printed --\n' "$2"
    docker run --rm --network none -w /workspace -e PATH="$PATH" -e HOME=/tmp -e GOFLAGS=-buildvcs=false -e CARGO_HOME -e RUSTUP_HOME -e LANG=C.UTF-8 \
    -e GIT_CONFIG_COUNT=1 -e GIT_CONFIG_KEY_0=safe.directory -e GIT_CONFIG_VALUE_0='*' "${mounts[@]}" "$image" /bin/sh -c "{ $2; } 2>&1" || true
  } >"$1.txtar"
  [[ $(tail -c 1 "$1.txtar" | od -An -tx1) == *0a ]] || echo >>"$1.txtar" # a part of the format ends with a line
  echo "$1: $(wc -c <"$1.txtar") bytes"
}

mkdir -p "$work"/{go/calc,c,py,js,rust/src,'with space'}
cat >"$work/go/go.mod" <<'END'
module example.com/calc

go 1.22
END
cat >"$work/go/calc/calc.go" <<'END'
package calc

import "fmt"

func Half(n int) int {
	fmt.Printf("half of %s\n", n)
	return 1 / n
}
END
cat >"$work/go/calc/calc_test.go" <<'END'
package calc

import (
	"os"
	"testing"
)

func TestFolder(t *testing.T) {
	dir, _ := os.Getwd()
	t.Errorf("this is %s", dir)
}

func TestHalf(t *testing.T) { Half(0) }
END
cat >"$work/c/area.h" <<'END'
int area(int width, int height);
static int unused(char *s) { return s; }
END
cat >"$work/c/main.c" <<'END'
#include "area.h"
#include "missing-one.h"
END
cat >"$work/c/bad.c" <<'END'
#include "area.h"
int main(void) {
  int width = "wide";
  return area(width, hight);
}
END
cat >"$work/py/report.py" <<'END'
import json
import sys


def load(path):
    with open(path) as f:
        return json.load(f)


def main():
    try:
        return load(sys.argv[1])
    except OSError as error:
        raise SystemError("no report") from error


main()
END
cat >"$work/py/test_report.py" <<'END'
import pathlib

here = pathlib.Path(__file__).parent


def test_folder(tmp_path):
    assert here == pathlib.Path("/elsewhere")


def test_missing():
    open(here / "missing.json")
END
cat >"$work/js/main.mjs" <<'END'
import { readFileSync } from 'node:fs'
const unused = 1
console.log(import.meta.url)
readFileSync(new URL('missing file.json', import.meta.url))
END
cat >"$work/js/eslint.config.mjs" <<'END'
export default [{ rules: { 'no-unused-vars': 'error', 'prefer-const': 'warn' } }]
END
cat >"$work/rust/Cargo.toml" <<'END'
[package]
name = "calc"
version = "0.1.0"
edition = "2021"
END
cat >"$work/rust/src/main.rs" <<'END'
fn main() {
    let unused = 1;
    let n: u8 = "many";
    println!("{}", env!("CARGO_MANIFEST_DIR"));
}
END
printf 'root = /workspace/data\nother = /workspaces/data\n' >"$work/app.ini"
printf 'a name with white space: "/workspace/with space/x"\n' >"$work/with space/notes.txt"
(cd "$work" && git init -q -b main . && git add app.ini 'with space' && git -c user.name=me -c user.email=me@example.com commit -q -m first)
printf 'root = /workspace/data2\nother = /workspaces/data\nlog=/workspace/log/app.log\n' >"$work/app.ini"

record go-vet 'cd go && go vet /workspace/go/...; go vet -json ./...'
record go-test 'cd go && go test -vet=off -count=1 ./...'
record go-test-json 'cd go && go test -vet=off -count=1 -json -run Half ./...'
record gcc 'gcc -c -I/workspace/c /workspace/c/main.c -o /tmp/x.o; gcc -c -Wall /workspace/c/bad.c -o /tmp/x.o'
record gcc-colour 'gcc -fdiagnostics-color=always -c -I /workspace/c /workspace/c/bad.c -o /tmp/x.o'
record make 'printf "all:\n\tgcc -I/workspace/c -c /workspace/c/main.c -o /tmp/x.o\n" >/tmp/Makefile; make -C /workspace/c -f /tmp/Makefile'
record python 'python3 /workspace/py/report.py "/workspace/with space/missing.json"'
record pytest 'python3 -B -m pytest -p no:cacheprovider --no-header /workspace/py'
record pytest-colour 'python3 -B -m pytest -p no:cacheprovider --no-header --color=yes --tb=short /workspace/py'
record node 'node js/main.mjs'
record eslint 'cd js && node /opt/eslint/node_modules/eslint/bin/eslint.js . ; node /opt/eslint/node_modules/eslint/bin/eslint.js --format json main.mjs'
record eslint-colour 'cd js && node /opt/eslint/node_modules/eslint/bin/eslint.js --color .'
record cargo 'cargo check --offline --manifest-path /workspace/rust/Cargo.toml --target-dir /tmp/target'
record cargo-colour 'cargo check --offline --color always --manifest-path /workspace/rust/Cargo.toml --target-dir /tmp/target'
record cargo-json 'cargo check --offline --quiet --message-format json --manifest-path /workspace/rust/Cargo.toml --target-dir /tmp/target'
record grep 'grep -rn --include=*.ini --include=*.txt workspace /workspace; grep -rlZ "with white" /workspace'
record grep-colour 'grep -rn --color=always --include=*.ini /workspace /workspace'
record git-diff 'git diff; git diff --no-index /workspace/app.ini "/workspace/with space/notes.txt"'
record git-diff-colour 'git diff --color=always'
record git 'git rev-parse --show-toplevel; git -C /workspace status --short; git worktree list; git config --list --show-origin | grep core; git clone /workspace/none /tmp/none'
record find 'find /workspace -name "*.txt" -print0; ls -d /workspace/*/; ls -l "/workspace/with space" /workspace/none; du -a /workspace/c'
record shell 'set -x; cd "/workspace/with space"; . /workspace/none.sh; pwd'
