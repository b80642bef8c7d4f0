//! Where everything of a pool lies, and with which modes.
//!
//! On media: `ns/<namespace>/` with the realms `shared/`, `private/<uid>/` and
//! `published/<version>/`; on a further device `<uuid>/<namespace>/`, with the same below it.

use std::path::{Path, PathBuf};

use crate::pool_file::PoolFile;
use engram_base::scope::Scope;

/// The namespace that every pool starts with.
pub const DEFAULT: &str = "default";

/// The folder of all namespaces, in the pool's.
pub const NAMESPACES: &str = "ns";
/// The folder of the shared realm.
pub const SHARED: &str = "shared";
/// The folder of the private realms.
pub const PRIVATE: &str = "private";
/// What a namespace says of itself.
pub const NAMESPACE_FILE: &str = "namespace.toml";
/// What a realm says of itself, and a published version.
pub const REALM_FILE: &str = "realm.toml";

/// The folder of all namespaces.
pub fn folder(pool: &Path) -> PathBuf {
    pool.join(NAMESPACES)
}

/// The folder of a namespace.
pub fn place(pool: &Path, name: &str) -> PathBuf {
    folder(pool).join(name)
}

/// What a namespace has on a device.
pub fn on_device(device: &Path, file: &PoolFile, name: &str) -> PathBuf {
    device.join(&file.uuid).join(name)
}

/// Where the realm of a scope lies within a namespace, for a user; the same on each device.
pub fn within(scope: Scope, user: u32) -> PathBuf {
    match scope {
        Scope::Private => Path::new(PRIVATE).join(user.to_string()),
        scope => PathBuf::from(scope.as_str()),
    }
}

/// The modes of a shared realm's folders and files.
pub fn modes(mode: u32) -> (u32, u32) {
    if mode & 0o020 == 0 { (0o700, 0o600) } else { (0o2770, 0o660) }
}
