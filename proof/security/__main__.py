"""``python -m proof.security``: the attack alone, or one input of it again."""

import argparse
import json
import sys

from proof.security.run import TARGETS, replayed, run


def main() -> int:
    """Exit code 1: something was found."""
    parser = argparse.ArgumentParser(prog="python -m proof.security", description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--no-canary", action="store_true", help="Plant no secrets.")
    parser.add_argument("--no-spark", action="store_true", help="Look for secrets without Spark.")
    parser.add_argument("--target", choices=TARGETS, help="With --number: feed one input again.")
    parser.add_argument("--number", type=int)
    asked = parser.parse_args()
    if asked.target is not None and asked.number is not None:
        data, outcome = replayed(asked.target, asked.seed, asked.number)
        print(f"{data!r}\n{outcome}")
        return 0
    tell = (lambda line: print(line, file=sys.stderr)) if sys.stderr.isatty() else None
    figures = run(
        asked.inputs,
        asked.seed,
        tell,
        processes=asked.processes,
        canary=not asked.no_canary,
        spark=not asked.no_spark,
    )
    print(json.dumps(figures.to_json(), indent=2))
    return 0 if figures.well else 1


if __name__ == "__main__":
    sys.exit(main())
