"""Writes one file of 100 orders for each place: ``python make_orders.py DAY``, with DAY from 1 to 28."""

import json
import sys
from pathlib import Path

ORDERS = 100

day = int(sys.argv[1])
for number, place in enumerate(("web", "shops")):
    first = (2 * day + number) * ORDERS
    orders = (
        {"order_id": order, "place": place, "cents": order % 97 * 100, "at": f"2026-01-{day:02}T12:00:00Z"}
        for order in range(first, first + ORDERS)
    )
    folder = Path("inbox", place)
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f".{day}.json"  # Spark ignores it until it has its name
    staged.write_text("".join(f"{json.dumps(order)}\n" for order in orders))
    staged.rename(folder / f"{day}.json")
print(f"{2 * ORDERS} orders of day {day} arrived.")
