#!/bin/sh
# Puts the library, its headers, and what pkg-config and CMake ask for under a prefix:
#   capi/install.sh FOLDER-OF-THE-BUILD PREFIX
# The tree may be moved as a whole: nothing in it names the prefix.
set -eu
built=$1 prefix=$2
own=$(dirname "$0")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$own/../Cargo.toml" | head -n 1)

put() { # mode, folder, files ...
	mode=$1 folder=$prefix/$2
	shift 2
	install -d "$folder"
	install -m "$mode" "$@" "$folder"
}

put 644 include "$own"/include/*.h "$own/include/engram.hpp"
put 644 include/engram "$own"/include/engram/*.hpp
put 644 include/pmemcpy "$own"/include/pmemcpy/*.h "$own"/include/pmemcpy/*.hpp
put 644 share/engram "$own/fortran/engram.f90"
put 644 lib "$built/libengram.a"
install -m 755 "$built/libengram.so" "$prefix/lib/libengram.so.$version"
ln -sf "libengram.so.$version" "$prefix/lib/libengram.so.0"
ln -sf libengram.so.0 "$prefix/lib/libengram.so"
ln -sf libengram.so.0 "$prefix/lib/libefs-api.so"
install -m 755 "$built/libengram_cluster.so" "$prefix/lib/libengram_cluster.so.$version"
ln -sf "libengram_cluster.so.$version" "$prefix/lib/libengram_cluster.so.0"
ln -sf libengram_cluster.so.0 "$prefix/lib/libengram_cluster.so"
install -d "$prefix/lib/pkgconfig" "$prefix/lib/cmake/engram"
sed "s/@VERSION@/$version/" "$own/engram.pc" >"$prefix/lib/pkgconfig/engram.pc"
put 644 lib/cmake/engram "$own/cmake/engram-config.cmake"
sed "s/@VERSION@/$version/" "$own/cmake/engram-config-version.cmake" \
	>"$prefix/lib/cmake/engram/engram-config-version.cmake"
