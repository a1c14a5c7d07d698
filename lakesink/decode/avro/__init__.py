"""Decodes Avro in Confluent's wire format to Arrow arrays of a table's types, for `decode="avro"`.

`schema` parses a writer's schema, `registry` finds it, `cursor` reads many values at once, `scalars` and `nested`
convert them to Arrow, and `messages` is the entry point.
"""
