"""The checks of the suite, by theme. Each names its promise."""
