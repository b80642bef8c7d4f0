"""Users and Unix groups by name, and by their digits where the system has no name for them."""

import functools
import grp
import pwd


@functools.cache
def user(uid: int) -> str:
    """Give a user's name, or the uid's digits where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@functools.cache
def unix_group(gid: int) -> str:
    """Give a Unix group's name, or the gid's digits where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
