//! Has the library call its own functions: what the engine in it opens is told from what the
//! program opens.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
