"""The pictures of the documents, drawn from the tables that the code decides by and from what it does when run."""
