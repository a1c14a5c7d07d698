"""The public functions: streams, appends, files, replays of dead letters."""
