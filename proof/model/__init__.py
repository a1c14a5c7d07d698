"""The protocol as a formal model, and what ties it to the code: `steps` is the table that both have to follow."""
