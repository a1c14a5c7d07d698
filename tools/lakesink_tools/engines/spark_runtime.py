"""The newest Spark that Iceberg has released a runtime for, and what a newer PySpark cannot do. Pure."""

from lakesink.rows.libraries import version_numbers

NEWEST_SPARK = "4.1"
SPARK_RUNTIME = f"org.apache.iceberg:iceberg-spark-runtime-{NEWEST_SPARK}_2.13:1.12.0"
"""Maven coordinates. README and pages name this Spark too; tests/release/test_support_page.py compares them."""

WITHOUT_RUNTIME = (
    f'For Spark SQL: pip install "pyspark=={NEWEST_SPARK}.*", in another environment if streams have run with this one,'
    " because an older Spark may not read their checkpoints. Or use another engine, see lakesink engines --help."
)


def lacks_runtime(pyspark: str) -> str:
    """What a version of PySpark cannot do because Iceberg has no runtime for it; empty if there is one."""
    if version_numbers(pyspark)[:2] <= version_numbers(NEWEST_SPARK):
        return ""
    return (
        f"pyspark {pyspark} is installed, and Iceberg's newest runtime is for Spark {NEWEST_SPARK}: streams run, but"
        " the Spark SQL of this environment cannot query, compact or expire their tables."
    )
