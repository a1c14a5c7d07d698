"""A playground: real servers, one stream, and a prompt that breaks things and counts what became of the rows."""
