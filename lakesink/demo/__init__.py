"""The story that a newcomer runs first: real flights, a driver killed twice, and the proof from the table alone."""
