"""The Kafka sink: a two-phase sink that produces each batch of a stream in one Kafka transaction.

Tasks write rows into immutable files of a staging folder. The commit is one transaction on the driver, with the rows of
these files and one record for the ledger topic. A producer fences every older one of the same sink before the ledger is
read, so nobody else can commit between reading and committing.
"""
