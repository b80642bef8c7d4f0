//! Gives the library the name under which programs look for it, and has it call its own functions.
//!
//! The number is that of the ABI, as it is of libengram (`capi/build.rs`).

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libengram_cluster.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
