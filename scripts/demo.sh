#!/usr/bin/env bash
# The demo, as the README runs it: what it claims is so, and what it prints to try next works.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
make --silent demo ARGS="--dir $folder/flights --output json" | tee "$folder/result.json"
.venv-demo/bin/python - "$folder/result.json" <<'PYTHON'
import json, subprocess, sys

result = json.load(open(sys.argv[1]))
assert result["proved"] is True, result
assert result["rows"] == 336776, result["rows"]
assert result["batches"] == 25, result["batches"]
assert (result["recovered"], result["skipped"]) == (1, 1), result
commands = [step["command"] for step in result["next"] if not step["online"]]
assert len(commands) == 4, commands
for command in commands:
    print(f"$ {command}", flush=True)
    assert "flights" in subprocess.run(command, shell=True, check=True, stdout=subprocess.PIPE, text=True).stdout
PYTHON
