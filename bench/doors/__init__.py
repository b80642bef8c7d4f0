"""The doors: how other programs' interfaces do on a pool, beside what they are used with today."""
