"""The checks of the suite, by theme. Each names the promise that it is about."""
