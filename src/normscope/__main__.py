"""`python -m normscope` is the command `normscope`."""

from normscope.cli.app import main

main()
