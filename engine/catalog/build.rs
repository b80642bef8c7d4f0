//! Sees to it that LMDB's C is built to call functions of this crate (`catalog/lmdb/wait.rs`,
//! `catalog/lmdb/process.rs`), or, where that is asked for, without them.
//!
//! A mutex of musl has its words elsewhere than one of glibc, and LMDB cannot tell them apart. So
//! LMDB's lock file has another layout with musl, which LMDB does tell: a catalog that a process
//! with the one library has open is refused by those with the other.

use std::env;

const FLAGS: [&str; 3] =
    ["-Dpthread_mutex_lock=engram_mutex_lock", "-Dgetpid=engram_getpid", "-Dfcntl=engram_fcntl"];
/// What musl's builds have beside these.
const MUSL: &str = "-DCACHELINE=128";
const PLAIN: &str = "ENGRAM_PLAIN_LMDB";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(lmdb_waits)");
    println!("cargo::rerun-if-env-changed={PLAIN}");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let (host, target) = (variable("HOST"), variable("TARGET"));
    let own = if host == target { "HOST_CFLAGS" } else { "TARGET_CFLAGS" };
    // The variables of which the `cc` crate adds up a compiler's flags.
    let underscored = format!("CFLAGS_{}", target.replace(['-', '.'], "_"));
    let names = [own, "CFLAGS", &format!("CFLAGS_{target}"), &underscored];
    for name in names {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let given: Vec<String> = names.iter().map(|name| variable(name)).collect();
    let is_given = |flag: &&str| given.iter().any(|all| all.split_whitespace().any(|f| f == *flag));
    let mut wanted = FLAGS.to_vec();
    if variable("CARGO_CFG_TARGET_ENV") == "musl" {
        wanted.push(MUSL);
    }
    if wanted.iter().all(is_given) {
        println!("cargo::rustc-cfg=lmdb_waits");
    } else if variable(PLAIN) != "1" {
        println!(
            "cargo::error=LMDB would be built to wait for its locks without end: a process could \
             sleep beside a free lock when another is killed. Add {} to {own} (this \
             repository's .cargo/config.toml sets them where {own} is not set; a crate that \
             depends on this one does the same in its own), or set {PLAIN}=1 to build without \
             them",
            wanted.join(" ")
        );
    }
}
