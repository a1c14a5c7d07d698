#!/bin/sh
# The model checker spin, and a C compiler for what it makes: prints the path of spin, or one sentence on what to do.
# spin is a Debian package: installed as such by root, else unpacked into .tools/, where nothing else on the machine changes.
set -eu

fail() {
    echo "lakesink: $1" >&2
    exit 1
}

command -v gcc > /dev/null || fail "the formal model needs gcc: install it (Debian, Ubuntu: apt-get install gcc libc6-dev)."
command -v spin && exit 0
tools=$(cd "$(dirname "$0")/.." && pwd)/.tools/spin
unpacked=$tools/usr/bin/spin
if [ ! -x "$unpacked" ]; then
    command -v apt-get > /dev/null ||
        fail "the formal model needs spin 6 and this machine has no apt-get: install spin (https://spinroot.com) so that 'spin' is on the path."
    if [ "$(id -u)" = 0 ] && apt-get install -y -qq spin > /dev/null 2>&1; then
        command -v spin && exit 0
    fi
    mkdir -p "$tools/package"
    (cd "$tools/package" && apt-get download -qq spin > /dev/null 2>&1) ||
        fail "the Debian package spin could not be fetched: run 'apt-get update', see whether 'apt-get download spin' works, then start again."
    dpkg -x "$tools"/package/spin_*.deb "$tools" || fail "the Debian package spin could not be unpacked into $tools."
    rm -rf "$tools/package"
fi
[ -x "$unpacked" ] || fail "$unpacked is not there after unpacking the Debian package spin."
echo "$unpacked"
