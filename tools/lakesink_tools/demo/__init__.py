"""The demo: a stream of real flights, a driver killed twice, and the proof from the table alone."""
