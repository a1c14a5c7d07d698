"""The words for checkpoints as Spark Declarative Pipelines lay them out."""

import pytest

from lakesink.spark.source.source_writers import words_of


@pytest.mark.parametrize("checkpoint", ["", "/data/checkpoints/orders", "/s/_checkpoints/orders", "/s/orders/flow/0"])
def test_other_checkpoints_keep_the_general_words(checkpoint: str) -> None:
    assert words_of(checkpoint) == ()


def test_names_with_braces_and_secrets_make_no_trouble() -> None:
    [words] = words_of("s3://user:hunter22@bucket/_checkpoints/db/orders/{flow}/7")
    assert words.what.format_map({"sink": "'orders'", "last": 2}).startswith("The full refresh of flow {flow} would")
    assert "hunter22" not in words.action
