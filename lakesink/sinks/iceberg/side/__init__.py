"""Tables beside a sink's own, which a batch also writes: dead letters and changelogs."""
