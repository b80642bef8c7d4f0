//! Has the library call its own functions: what the engine in it opens is told from what the
//! program opens. What Rust cannot say is compiled from C: functions of any number of arguments,
//! structures of the C library whose fields only its headers name, and symbols that are hidden.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
    let files =
        ["src/asynchronous.c", "src/entries.c", "src/memory.c", "src/streams.c", "src/variadic.c"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    cc::Build::new().files(files).flag("-fno-builtin").warnings(true).compile("engram_preload_c");
}
