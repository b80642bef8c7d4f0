//! Gives the library the name under which programs look for it.
//!
//! The number is that of the ABI, and is raised when a program that was linked against an older
//! library would not run right any more.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libengram.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
