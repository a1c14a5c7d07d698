"""What all servers say alike when this machine cannot run one."""


class Missing(Exception):
    """A program that tests need cannot be had on this machine: one sentence that says what to do."""
