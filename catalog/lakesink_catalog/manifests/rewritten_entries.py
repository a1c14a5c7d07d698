"""Entries of a manifest for another one of the same layout: carried over, or ended by a snapshot. Pure."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from lakesink_catalog.manifests.avro import Header, blocks, check_end
from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.entries import DELETED, EXISTING, Inherited, NewHead, layout_of


class NewEntry(NamedTuple):
    """An entry of the manifest to write.

    `rows` is its number of rows or positions. `sequence_number` is its data sequence number; None for the one that the
    commit will have.
    """

    status: int
    path: str
    encoded: bytes
    rows: int
    partition: tuple[bytes | None, ...]
    sequence_number: int | None


def rewritten_entries(
    data: bytes, header: Header, inherited: Inherited, removed: Collection[str], snapshot_id: int
) -> Iterator[NewEntry]:
    """The live entries of a manifest: those of `removed` paths become DELETED by the snapshot, the others EXISTING.

    Sequence numbers are written out, because in another manifest the entries would inherit other ones. Entries that an
    earlier snapshot deleted are left out.
    """
    layout = layout_of(header.avro_schema)
    heads: dict[tuple[bytes, bytes, bool], NewHead | None] = {}
    for count, block in blocks(data, header):
        at = 0
        for _ in range(count):
            try:
                cut = layout.cut(block, at)
                path = layout.path(block, cut)
            except IndexError:
                raise Malformed("an entry is cut") from None
            ends = path in removed
            around = block[at : cut.begin], block[cut.end : cut.after], ends
            at = cut.after
            if around not in heads:
                removed_by = snapshot_id if ends else None
                heads[around] = layout.carried(*around[:2], inherited, removed_by=removed_by)
            head = heads[around]
            if head is not None:
                yield NewEntry(
                    DELETED if ends else EXISTING,
                    path,
                    head.before + block[cut.begin : cut.end] + head.behind,
                    cut.rows,
                    layout.partition(block[cut.partition]),
                    head.sequence_number,
                )
        check_end(block, at)
