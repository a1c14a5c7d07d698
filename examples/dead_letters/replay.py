"""The repair: the letters that fix.sql returns are decoded as the stream decodes, and land in the table once."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import lakesink

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink
spark = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
fix = Path(__file__).with_name("fix.sql").read_text()

done = lakesink.replay_dead_letters(spark, "shop.orders", fix, decode="json", verbose=False)
print(f"   {done.letters} letters replayed, {done.pending} pending.")
