import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from lakesink.api.with_expectations import reason_in
from lakesink.spark.spark_errors import INTERRUPTED, MAX_NOTE, QueryStopped, job_error
from lakesink_catalog.words import cut
from lakesink_protocol.errors import MOST_CHOICES, LakesinkError, QueryError, WriteError

PLACE = "topic t, partition 0, offset 1"
JAVA = "\tat org.apache.spark.sql.execution.SparkPlan.collect(SparkPlan.scala:1)\n"
LAST_CAUSE = f"Caused by: java.nio.channels.CancelledKeyException\n{JAVA}"
"""Of the socket to a Python that has ended: it says nothing of the reason."""


def _python_failure(line: str) -> str:
    return (
        "An error occurred while calling o7.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) "
        "(10.0.0.1 executor 1): org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f'  File "worker.py", line 1, in main\n    process()\n{line}\n\n{JAVA}\nDriver stacktrace:\n{JAVA}'
        f"Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f'  File "worker.py", line 1, in main\n    process()\n{line}\n\n{JAVA}'
    )


@pytest.mark.parametrize(
    ("name", "kind"), [("WriteError", WriteError), ("QueryError", QueryError), ("Unheard", WriteError)]
)
def test_an_error_of_lakesink_comes_back_as_the_same_error(name: str, kind: type[LakesinkError]) -> None:
    raised = "[LAKESINK_LOSSY] a: 1.5\n  Data: Nothing is in.\n  Do: Cast it."
    error = job_error(_python_failure(f"lakesink_protocol.errors.{name}: {raised}"))
    assert type(error) is kind
    assert str(error) == raised


def test_an_error_with_several_ways_to_go_on_comes_back_with_each_of_them() -> None:
    raised = WriteError("LOSSY", "a: 1.5", data="Nothing is in.", action=("Cast it.", "Leave it out."))
    error = job_error(_python_failure(f"lakesink_protocol.errors.WriteError: {raised}"))
    assert error.choices == ("Cast it.", "Leave it out.")
    assert str(error) == str(raised)


@given(
    st.text(),
    st.lists(st.text(), max_size=3),
    st.text(),
    st.lists(st.text(min_size=1), min_size=1, max_size=MOST_CHOICES),
)
@example("1 event", ["topic t, partition 0, offset 1", "  Data: x"], "Nothing is in.", ["Set it."])
def test_an_error_keeps_its_code_and_every_part_on_its_way_out_of_a_task(
    what: str, details: list[str], data: str, ways: list[str]
) -> None:
    raised = WriteError("KEY_MISSING", what, data=data, action=ways, details=details)
    error = job_error(_python_failure(f"lakesink_protocol.errors.WriteError: {raised}") + LAST_CAUSE)
    assert (error.code, str(error)) == (raised.code, str(raised))


@pytest.mark.parametrize(
    "error",
    [
        WriteError.of("OPERATION_UNKNOWN", details=[PLACE], documents="1 document", first=PLACE),
        WriteError.of("KEY_MISSING", details=[PLACE, "row 2 of task 1"], events="2 events", keys="id", first=PLACE),
        WriteError.of("TRUNCATE", place=PLACE),
    ],
    ids=lambda error: error.code,
)
def test_a_refusal_of_an_event_reaches_the_user_as_itself(error: WriteError) -> None:
    found = job_error(_python_failure(f"lakesink_protocol.errors.WriteError: {error}") + LAST_CAUSE)
    assert (found.code, found.action, str(found)) == (error.code, error.action, str(error))


def test_of_a_chain_of_errors_the_last_one_counts() -> None:
    chain = [f"lakesink_protocol.errors.WriteError: [LAKESINK_{n}] w\n  Data: d\n  Do: a" for n in ("FIRST", "SECOND")]
    text = _python_failure("\n\nThe above exception was the direct cause of the following exception:\n\n".join(chain))
    assert job_error(text).code == "LAKESINK_SECOND"


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("ModuleNotFoundError: No module named 'pyarrow'", "No module named 'pyarrow'"),
        ("ModuleNotFoundError: No module named 'lakesink.spark'", "No module named 'lakesink.spark'"),
        ("ModuleNotFoundError: No module named 'lakesink_catalog'", "No module named 'lakesink_catalog'"),
        ("pyspark.errors.PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18 must be installed", "PyArrow >= 18"),
        ("pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has 3.9", "3.9"),
        ('java.io.IOException: Cannot run program "python9": error=2', "python9"),
        ("AttributeError: Can't get attribute 'WriteTask' on <module 'lakesink.spark.rows.task'>", "WriteTask"),
        ("ImportError: cannot import name 'TaskWriter' from 'lakesink_protocol.two_phase'", "TaskWriter"),
    ],
)
def test_an_unfit_executor_is_named_as_such(line: str, fact: str) -> None:
    error = job_error(_python_failure(line))
    assert error.code == "LAKESINK_EXECUTOR_PYTHON"
    assert fact in error.what
    assert "PYSPARK_PYTHON" in error.action


def test_a_missing_module_of_the_users_own_is_not_blamed_on_lakesinks_setup() -> None:
    assert job_error(_python_failure("ModuleNotFoundError: No module named 'pandas'")).code == "LAKESINK_JOB_FAILED"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (_python_failure("ValueError: bad row"), "ValueError: bad row"),
        (
            "o7.collect\n: A\n" + JAVA + "Caused by: B\n" + JAVA + "Caused by: java.io.IOException: disk full",
            "disk full",
        ),
        (
            f'An error occurred while calling o99.f.\n: java.io.IOException: No FileSystem for scheme "foo"\n{JAVA}',
            'No FileSystem for scheme "foo"',
        ),
        ("[DIVIDE_BY_ZERO] Division by zero. Use try_divide.", "[DIVIDE_BY_ZERO]"),
        (_python_failure("ValueError: " + "wordy " * 50), "wordy wordy ..."),
        ("", "no reason given"),
    ],
)
def test_the_telling_line_comes_first(text: str, line: str) -> None:
    first = str(job_error(text)).partition("\n")[0]
    assert first.startswith("[LAKESINK_JOB_FAILED]")
    assert line in first


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"objectName": "`totl`", "proposal": "`id`, `total`"}, "there is no `totl`. Did you mean `id`, `total`?"),
        ({"fieldName": "`citi`", "proposal": "`city`"}, "there is no `citi`. Did you mean `city`?"),
        ({"functionName": "`f`"}, "A column, variable, or function parameter cannot ..."),
        (None, "A column, variable, or function parameter cannot ..."),
    ],
)
def test_the_reason_of_a_wrong_name_has_sparks_suggestion(parameters: dict[str, str] | None, reason: str) -> None:
    message = "\nA column, variable, or function parameter cannot be resolved here.\n'Project"
    error = PySparkException(message, messageParameters=parameters)
    assert reason_in(error, 53) == reason


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a b", "a b"), ("one two three", "one two ..."), ("one twoX three", "one ..."), ("x" * 20, "x" * 7 + " ...")],
)
def test_a_text_is_cut_between_words(text: str, shown: str) -> None:
    assert cut(text, 11) == shown
    assert len(cut(text, 11)) <= 11


@pytest.mark.parametrize("ways", ["Stop it.", ("Stop it.", "Start it.")])
def test_a_list_of_details_is_left_to_the_log_and_a_single_one_stays(ways: str | tuple[str, ...]) -> None:
    single = WriteError("KEY_TWICE", "Twice.", data="Nothing.", action=ways, details=["row 1"])
    whole = str(single)
    single.leave_details_to_log()
    assert str(single) == whole
    listing = WriteError("KEY_TWICE", "Twice.", data="Nothing.", action=ways, details=["row 1", "row 2"])
    whole = str(listing)
    listing.leave_details_to_log()
    without = whole.replace("\n  - row 1\n  - row 2", "")
    assert str(listing) == without.replace("Nothing.", "Nothing. The driver's log has the complete list.")


def test_an_error_whose_message_is_in_the_log_keeps_its_first_line_and_its_attributes() -> None:
    error = WriteError("KEY_TWICE", "Twice.", data="Nothing.", action=("Stop it.", "Start it."), details=["row 1"])
    whole = str(error)
    error.leave_message_to_log()
    assert str(error).splitlines() == [
        "[LAKESINK_KEY_TWICE] Twice.",
        "  The driver's log has the whole message, with what to do.",
        "  More: lakesink explain LAKESINK_KEY_TWICE",
    ]
    assert (error.data, error.choices, error.details) == ("Nothing.", ("Stop it.", "Start it."), ("row 1",))
    error.name_checkpoint("ck")  # another run raises the same object
    assert str(error) == whole


def test_no_failure_can_feed_the_pattern_that_overflows_sparks_stack() -> None:
    text = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.\n" + "x" * 100_000
    error = job_error(text)
    shown = str(error) + "".join(error.__notes__)
    assert "py4j.protocol.Py4JJavaError" not in shown
    assert len(shown) < MAX_NOTE + 1000
    assert len(str(error).partition("\n")[0]) < 200


def test_a_failure_shows_no_secret() -> None:
    error = job_error(_python_failure("IOError: cannot open s3://u:hunter22@b/c with secret_key=abcdefgh"))
    shown = str(error) + "".join(error.__notes__)
    assert "hunter22" not in shown
    assert "abcdefgh" not in shown


def test_a_wanted_stop_has_the_text_that_spark_knows_and_nothing_more() -> None:
    assert str(QueryStopped()) == INTERRUPTED
    assert INTERRUPTED.startswith("py4j.protocol.Py4JJavaError: An error occurred while calling")
    assert len(INTERRUPTED) < 120
