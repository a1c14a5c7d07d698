"""`python -m lakesink`: the command line, where no `lakesink` is on the path."""

from lakesink_tools.cli.main import main

if __name__ == "__main__":
    main(prog_name="lakesink")
