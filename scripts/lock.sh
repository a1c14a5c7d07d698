#!/bin/sh
# Resolves the files in requirements/ that pyproject.toml determines anew, each in an environment of its own.
set -eu
cd "$(dirname "$0")/.."

python=$(sh scripts/check-machine.sh)
work=$(mktemp -d)
trap 'rm -rf "$work" build' EXIT # pip builds in the tree
"$python" -m venv "$work/venv"
pip="$work/venv/bin/python -m pip"
$pip install --upgrade pip setuptools wheel # dependency groups need a pip of 2025
$pip install --no-build-isolation --group dev ".[avro,demo,metrics,openlineage,postgres,s3,spark]"
note='# Made by `make lock`; change pyproject.toml instead.'
{ echo "$note"; $pip freeze --all | grep -E '^(setuptools|wheel)=='; } > requirements/build.txt
{ echo "$note"; $pip freeze | grep -vE '^(setuptools|wheel|lakesink)( @|==)'; } > requirements/dev.txt
$pip install --no-build-isolation --group site
{ echo "$note"; $pip freeze | grep -vE '^(setuptools|wheel|lakesink)( @|==)' | grep -vxFf requirements/dev.txt; } > requirements/site.txt

"$python" -m venv "$work/release"
pip="$work/release/bin/python -m pip"
$pip install --upgrade pip
$pip install --group release
{ echo "$note"; $pip freeze; } > requirements/release.txt
