"""Files of a pool beside files of tmpfs."""
