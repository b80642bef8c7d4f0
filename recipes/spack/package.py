"""A recipe of Spack's. Untried: nobody has built a package with it yet.

It takes the source distribution that ENGRAM_SOURCE names:

    make wheels PLATFORMS=source
    export ENGRAM_SOURCE=$PWD/target/wheels/engram-VERSION.tar.gz
    spack repo create engram-repo && mkdir -p engram-repo/packages/engram
    cp recipes/spack/package.py engram-repo/packages/engram/
    spack repo add engram-repo && spack install --no-checksum engram

For a clone, `spack develop --path CLONE engram@local` in an environment takes the clone instead.
"""

import os

from spack.package import copy, depends_on, join_path, license, mkdirp, variant, version, which
from spack_repo.builtin.build_systems.python import PythonPackage

SOURCE = os.environ.get("ENGRAM_SOURCE", "")
CRATES = ("engram-preload", "engram-mount", "engram-capi", "engram-cluster-c")
CLUSTER = "engram-cluster-python"


class Engram(PythonPackage):
    """Arrays in memory that every process on the node maps, and that outlive their program."""

    license("Apache-2.0")

    # A path, and no release with a digest: nothing is published yet.
    version("local", url=f"file://{SOURCE}")

    variant("cluster", default=True, description="The module that joins the pools of many nodes")
    variant("cli", default=True, description="The command engram")

    depends_on("c", type="build")
    depends_on("rust@1.92:", type="build")
    depends_on("py-maturin@1.9:1", type="build")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-numpy@2:", type=("build", "run"))
    depends_on("py-typer", type="run", when="+cli")
    depends_on("py-rich", type="run", when="+cli")
    depends_on("py-cftime", type="run", when="+cli")

    def install(self, spec, prefix):
        """Build what stands beside the natives, then the package, then the C library."""
        crates = [*CRATES, *([CLUSTER] if spec.satisfies("+cluster") else [])]
        cargo = which("cargo", required=True)
        cargo("build", "--release", "--locked", *(word for name in crates for word in ("-p", name)))
        built = join_path(self.stage.source_path, "target", "release")
        native = join_path("python", "engram", "_native")
        mkdirp(native)
        copy(join_path(built, "libengram_preload.so"), native)
        super().install(spec, prefix)
        if spec.satisfies("+cluster"):
            site = join_path(prefix, spec["python"].package.platlib, "engram", "cluster")
            copy(join_path(built, "lib_cluster.so"), join_path(site, "_cluster.so"))
        mkdirp(prefix.bin)
        copy(join_path(built, "engram-mount"), prefix.bin)
        which("sh", required=True)(join_path("capi", "install.sh"), built, prefix)
