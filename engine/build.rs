//! Tells whether LMDB's C is built to wait for its locks by our function (`catalog/lmdb/wait.rs`).

const FLAG: &str = "-Dpthread_mutex_lock=engram_mutex_lock";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(lmdb_waits)");
    // What the `cc` crate adds to a compiler's flags, beside those that are for one target alone.
    let names = ["HOST_CFLAGS", "TARGET_CFLAGS", "CFLAGS"];
    for name in names {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let has_flag = |name| std::env::var(name).is_ok_and(|flags: String| flags.contains(FLAG));
    if names.into_iter().any(has_flag) {
        println!("cargo::rustc-cfg=lmdb_waits");
    } else {
        println!(
            "cargo::warning=built without HOST_CFLAGS={FLAG}, which `make` sets: who waits for the \
             catalog may then sleep beside a free lock when others are killed"
        );
    }
}
