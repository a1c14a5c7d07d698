"""Checks of a catalog with single commits. Each probe yields what went wrong at each step; empty strings are fine."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyiceberg.table import update as updates

from lakesink_catalog.words import counted
from lakesink_tools.checks.bench import KEY, Bench, Offer, answer, send
from lakesink_tools.checks.certify.state import Sent, broken_promise
from lakesink_tools.checks.certify.verdict import Check

Probe = Callable[[Bench], Iterator[str]]

OWN_WRITES = 10
SENDERS = 4
KEPT = 3


def tag(bench: Bench) -> Iterator[str]:
    """A commit sets the tag, and the next one moves it."""
    for _ in range(2):
        yield bench.accepts(bench.offers(1)[0])


def first_commits(bench: Bench) -> Iterator[str]:
    """Of several first commits one lands, and a later one is refused, which asserts no head where there is one."""
    late, *rivals = bench.offers(1 + SENDERS)
    answers = _at_once(bench, rivals)
    yield broken_promise(answers, bench.state())
    if all(sent.refused_as for sent in answers):  # a cautious catalog
        yield bench.accepts(bench.offers(1)[0])
    no_head = updates.AssertRefSnapshotId(ref=KEY.branch, snapshot_id=None)
    for form in (late, late.only_properties()):
        wrong = _asserting(_only_head(form), no_head)
        yield bench.refuses(wrong, "a commit that asserted no head where there was one")


def stale_head(bench: Bench) -> Iterator[str]:
    """A commit is refused if it asserts an old head."""
    yield bench.accepts(bench.offers(1)[0])
    second, late = bench.offers()
    yield bench.accepts(second)
    yield bench.refuses(_only_head(late), "a commit that asserted an old head")
    yield bench.refuses(_only_head(late).only_properties(), "properties of a commit that asserted an old head")


def stale_tag(bench: Bench) -> Iterator[str]:
    """A commit with the right head and a wrong tag is refused; with the right tag it lands."""
    first = bench.offers(1)[0]
    yield bench.accepts(first)
    yield bench.accepts(bench.offers(1)[0])
    fresh = bench.offers(1)[0]
    for asserted, what in ((first.snapshot_id, "an old tag"), (None, "no tag where there was one")):
        wrong = updates.AssertRefSnapshotId(ref=KEY.ledger_tag, snapshot_id=asserted)
        yield bench.refuses(_asserting(fresh, wrong), f"a commit that asserted the head and {what}")
    yield bench.accepts(fresh)


def table_uuid(bench: Bench) -> Iterator[str]:
    """A commit to another table of the same name is refused."""
    wrong = updates.AssertTableUUID(uuid=uuid.uuid4())
    yield bench.refuses(_asserting(bench.offers(1)[0], wrong), "a commit that asserted another table's UUID")
    yield bench.accepts(bench.offers(1)[0])
    yield bench.refuses(_asserting(bench.offers(1)[0], wrong), "a commit that asserted another table's UUID")


def schema(bench: Bench) -> Iterator[str]:
    """A commit that asserts another schema than the table's is refused."""
    offered = bench.offers(1)[0]
    wrong = updates.AssertCurrentSchemaId(current_schema_id=offered.table.metadata.current_schema_id + 1)
    yield bench.refuses(_asserting(offered, wrong), "a commit that asserted another schema")
    yield bench.accepts(offered)


def equal_id(bench: Bench) -> Iterator[str]:
    """A second snapshot with an existing id is refused: with the head's id, and with an older one's."""
    first = bench.offers(1)[0]
    yield bench.accepts(first)
    yield bench.refuses(bench.offers(1, first.snapshot_id)[0], "a second snapshot of the same id")
    yield bench.accepts(bench.offers(1)[0])
    if first.snapshot_id in dict(bench.state().snapshots):  # else the catalog has forgotten it
        yield bench.refuses(bench.offers(1, first.snapshot_id)[0], "a second snapshot of an older one's id")


def all_or_nothing(bench: Bench) -> Iterator[str]:
    """Snapshot, head, property and tag move together; a commit with one impossible part changes nothing."""
    yield bench.accepts(bench.offers(1)[0])
    first, late = bench.offers()
    yield bench.accepts(first)
    yield bench.refuses(late, "a commit that asserted an old head")
    fresh = bench.offers(1)[0]
    moves = [update for update in fresh.updates if isinstance(update, updates.SetSnapshotRefUpdate)]
    of_branch = next(move for move in moves if move.ref_name == KEY.branch)
    torn = replace(fresh, updates=(*fresh.only_properties().updates, of_branch))
    yield bench.refuses(torn, "a commit that moved the branch to no snapshot")
    yield bench.accepts(bench.offers(1)[0])


def own_writes(bench: Bench) -> Iterator[str]:
    """Every connection shows at once what one connection commits."""
    for _ in range(OWN_WRITES):
        offered = bench.offers(1)[0]
        yield bench.accepts(offered)
        if bench.state(bench.other).head != offered.snapshot_id:
            yield "Another connection did not see a commit that had been acknowledged."


def sent_twice(bench: Bench) -> Iterator[str]:
    """A request that is sent again, later or at the same time, lands once."""
    first = bench.offers(1)[0]
    yield bench.accepts(first)
    bench.heard.append(bench.ask(first, bench.other).refused_as)
    yield _once(bench, first)
    second = bench.offers(1)[0]
    answers = _at_once(bench, [second] * SENDERS)
    if all(answer.refused_as for answer in answers):
        yield f"It refused every copy of a valid commit: {answers[0].detail}."
    yield _once(bench, second)


def history(bench: Bench) -> Iterator[str]:
    """After a few commits the table has all their snapshots, each with its parent."""
    offered = []
    for _ in range(KEPT):
        offered.append(bench.offers(1)[0])
        yield bench.accepts(offered[-1])
    kept = bench.state().branch
    if kept[:KEPT] != tuple(reversed([one.snapshot_id for one in offered])):
        yield f"After {KEPT} commits the branch has {counted(len(kept), 'snapshot')}."


def two_tables(first: Bench, second: Bench) -> str:
    """A request lands in both tables, which must be empty; if one table must refuse, it lands in none."""
    [both, late] = zip(first.offers(), second.offers(), strict=True)
    send(first.mine, *both)
    landed = [first.state(), second.state()]
    if any(state.head != offered.snapshot_id for state, offered in zip(landed, both, strict=True)):
        return "It accepted a commit of two tables, but not both tables show it."
    fresh = first.offers(1)[0]
    sent = answer(first.other, fresh, late[1], needed=True)
    if not sent.refused_as:
        return "It accepted a commit of two tables of which one asserted an old head."
    first.heard.append(sent.refused_as)
    if [first.state(), second.state()] != landed:
        return "It refused a commit of two tables but changed one of them."
    return ""


PROBES: Mapping[Check, Probe] = {
    Check.TAG: tag,
    Check.FIRST_COMMITS: first_commits,
    Check.STALE_HEAD: stale_head,
    Check.STALE_TAG: stale_tag,
    Check.TABLE_UUID: table_uuid,
    Check.SCHEMA: schema,
    Check.EQUAL_ID: equal_id,
    Check.ALL_OR_NOTHING: all_or_nothing,
    Check.OWN_WRITES: own_writes,
    Check.SENT_TWICE: sent_twice,
    Check.HISTORY: history,
}


def _at_once(bench: Bench, offers: Sequence[Offer]) -> list[Sent]:
    """Send each through a connection of its own: some clients serve one thread only."""
    connections = [bench.connect() for _ in offers]
    with ThreadPoolExecutor(len(offers)) as senders:
        return list(senders.map(bench.ask, offers, connections))


def _once(bench: Bench, offered: Offer) -> str:
    state = bench.state()
    times = [snapshot for snapshot, _ in state.snapshots].count(offered.snapshot_id)
    if times != 1 or state.head != offered.snapshot_id:
        return f"A commit that was sent more than once is {times} times in the table."
    return ""


def _asserting(offered: Offer, wrong: updates.TableRequirement) -> Offer:
    """The offer with one of its assertions replaced."""

    def same(requirement: updates.TableRequirement) -> bool:
        return type(requirement) is type(wrong) and getattr(requirement, "ref", None) == getattr(wrong, "ref", None)

    kept = (requirement for requirement in offered.requirements if not same(requirement))
    return replace(offered, requirements=(*kept, wrong))


def _only_head(offered: Offer) -> Offer:
    """The offer without its assertion on the tag, so that only the head can refuse it."""
    kept = (need for need in offered.requirements if getattr(need, "ref", KEY.branch) == KEY.branch)
    return replace(offered, requirements=tuple(kept))
