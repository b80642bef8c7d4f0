//! Has the library call its own functions: what the engine in it opens is told from what the
//! program opens. What Rust cannot say is compiled from C: functions of any number of arguments,
//! and structures of the C library whose fields only its headers name.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Where a section begins and ends is no other library's concern.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,start-stop-visibility=hidden");
    println!("cargo:rerun-if-changed=build.rs");
    let files = ["src/variadic.c", "src/streams.c", "src/asynchronous.c", "src/memory.c"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    cc::Build::new().files(files).flag("-fno-builtin").warnings(true).compile("engram_preload_c");
}
