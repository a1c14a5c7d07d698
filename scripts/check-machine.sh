#!/bin/sh
# Is this machine fit for lakesink? Checked before anything is installed: a Java that can run Spark, and a Python.
# Prints the path of the Python to use; or one sentence on what to install, and fails.
set -eu

fail() {
    echo "lakesink: $1" >&2
    exit 1
}

# JAVA=pip takes a Java of the Python index where there is no other, see lakesink/java.py.
if [ "${JAVA:-}" != pip ]; then
    install="install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), set JAVA_HOME to where it is, or take the one of the Python index: make demo JAVA=pip"
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    version=$("$java" -version 2>&1) || fail "Spark needs Java 17 or newer and '$java' does not run: $install."
    major=$(printf '%s\n' "$version" | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
    [ "${major:-0}" -ge 17 ] ||
        fail "Spark needs Java 17 or newer and '$java' is Java ${major:-of an unknown version}: $install."
fi

fit='import sys; sys.exit(sys.version_info < (3, 11))'
for python in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$python" -c "$fit" 2>/dev/null; then
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            fail "'$python' cannot make virtual environments: install that part of it (Debian, Ubuntu: apt-get install python3-venv)."
        command -v "$python"
        exit 0
    fi
done
fail "Python 3.11 or newer was not found as ${PYTHON:-python3}: install it (Debian, Ubuntu: apt-get install python3 python3-venv) or run make PYTHON=/path/to/python."
