"""`python -m normscope` runs the command `normscope`."""

from normscope.cli.app import main

main()
