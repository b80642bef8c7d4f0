"""Wheels: built for each platform, looked through, and tried where nothing else is installed.

`make wheels` runs this package. Its modules, in the order in which a wheel goes through them:

=============  =====================================================================
`platforms`    what wheels are built for, and what building them needs
`building`     compiles and links: everything that is native, for one platform
`notices`      the licences of all that is linked or bundled
`archive`      puts it together as one file
`audits`       what must hold of the file: its symbols, its tags, its size
`trials`       installs it into environments that have nothing else; `smoke` runs there
=============  =====================================================================
"""
