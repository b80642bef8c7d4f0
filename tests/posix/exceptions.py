"""What a mount does not do that suites of file systems ask for, each with its reason."""

PJDFSTEST: dict[str, dict[str, str]] = {"job": {}, "shared": {}, "none": {}}
"""By what the kernel may keep: tests of pjdfstest that end otherwise than on a tmpfs."""

_NO_MAP = "the kernel maps no file for sharing whose pages it is not to keep (ENODEV)"

FSX: dict[str, dict[str, str]] = {
    "job": {},
    "shared": {},
    "none": {"mapread": _NO_MAP, "mapwrite": _NO_MAP, "invalidate": _NO_MAP},
}
"""By what the kernel may keep: operations that fsx is not to try."""
