"""Avro in Confluent's wire format as Arrow arrays of a table's types: what `decode="avro"` runs in a task.

`schema` parses what a value was written with, `registry` finds it, `cursor` reads many values at once, `scalars` and
`nested` make Arrow of them, `messages` is the way in.
"""
