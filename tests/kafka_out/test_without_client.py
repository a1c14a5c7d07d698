"""Executors write without a Kafka client, and a driver without one is told what to install."""

import subprocess
import sys

WITHOUT = "import sys; sys.modules['confluent_kafka'] = None\n"


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_an_executor_imports_neither_a_kafka_client_nor_pyiceberg() -> None:
    imported = "bool({'confluent_kafka', 'pyiceberg'} & set(sys.modules))"
    code = f"import sys, lakesink.sinks.kafka.staged_rows; sys.exit({imported})"
    assert run(code).returncode == 0


def test_the_sink_says_what_to_install() -> None:
    failed = run(f"{WITHOUT}import lakesink; lakesink.KafkaSink")
    assert "LAKESINK_KAFKA_CLIENT_MISSING" in failed.stderr
    assert 'pip install "lakesink[kafka]"' in failed.stderr


def test_the_outbox_says_what_to_install() -> None:
    asked = ["outbox", "shop.orders", "--topic", "orders", "--bootstrap-servers", "127.0.0.1:1", "--once"]
    failed = run(f"{WITHOUT}from lakesink_tools.cli.main import main; sys.argv = ['lakesink', *{asked!r}]; main()")
    assert failed.returncode == 2
    assert "LAKESINK_KAFKA_CLIENT_MISSING" in failed.stderr
