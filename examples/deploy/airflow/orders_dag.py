"""Airflow 3: take the files that have arrived, every quarter of an hour, and then prove that every batch is there once.

The tasks run programs in lakesink's own environment, so Airflow and lakesink share no package.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

HOME = "/opt/lakesink"
PLACES = "--catalog lake --checkpoint s3a://shop/checkpoints/orders"

with DAG(
    dag_id="orders",
    description="Orders into the table shop.orders",
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # the checkpoint knows what is missing; a run for each past quarter would find nothing
    max_active_runs=1,  # two drivers on one checkpoint harm nothing, but one of them fails
    default_args={
        "retries": 2,
        "retry_delay": timedelta(minutes=1),
        "env": {"PYICEBERG_HOME": "/etc/lakesink"},
        "append_env": True,
    },
) as dag:
    load = BashOperator(
        task_id="load",
        bash_command=f"{HOME}/bin/python {HOME}/orders_stream.py --available-now --inbox s3a://shop/incoming {PLACES}",
        execution_timeout=timedelta(hours=2),
    )
    audit = BashOperator(
        task_id="audit",
        bash_command=f"{HOME}/bin/lakesink audit shop.orders {PLACES}",
        retries=0,  # a finding stays a finding
    )
    health = BashOperator(
        task_id="health",
        bash_command=f"{HOME}/bin/lakesink health shop.orders --catalog lake",
        retries=0,
    )
    load >> [health, audit]
