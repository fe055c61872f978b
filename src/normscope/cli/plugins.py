"""normscope plugins: what other installed packages add to normscope."""

from __future__ import annotations

from normscope.cli.options import JsonFlag
from normscope.cli.output import print_json, print_table
from normscope.words import printable

EXAMPLES = ("normscope plugins", "normscope plugins --json")


def plugins(json: JsonFlag = False) -> None:
    """List what other installed packages add.

    Packages can add checkpoint formats, growth laws, measures and claims.
    """
    from normscope.plugins import GROUPS
    from normscope.plugins import plugins as installed

    found = [plugin for group in GROUPS for plugin in installed(group)]
    rows = [{"group": plugin.group, "name": plugin.name, "package": plugin.package} for plugin in found]
    if json:
        print_json(rows)
    elif rows:
        print_table(("group", "name", "package"), [list(row.values()) for row in rows])
    else:
        print(printable(f"No installed package adds anything to normscope ({', '.join(GROUPS)})."))
