//! Gives the library the name under which programs look for it, and has it call its own functions.
//!
//! The number is that of the ABI, and is raised when a program that was linked against an older
//! library would not run right any more. A preloaded copy of the engine exports functions of the
//! same names, which LMDB's C calls; the dynamic linker would give the library those.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libengram.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
