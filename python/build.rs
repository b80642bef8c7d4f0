//! Has the module call its own functions, whatever else the process has loaded.
//!
//! A preloaded copy of the engine exports functions of the same names, which LMDB's C calls; the
//! dynamic linker would give the module those.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
