//! A user's own realm in a namespace: made at its first use.
//!
//! It is made whole under a hidden name and then renamed to the user's number, under the pool's
//! turn, so that of two processes of the user one makes it and the other finds it, and nobody
//! removes the namespace meanwhile. It lies in a sticky folder: others may put things there, but
//! not take this one away. What they put in its place beforehand is refused by name.

use std::fs;
use std::path::Path;

use super::births::BIRTHS;
use super::make::{NewRealm, build_realm};
use super::setup::{namespace_file, private_setup};
use super::{PRIVATE, on_device, place, within};
use crate::error::{Error, Kind, Result};
use crate::folder::{check_own, check_real, make_for_namespace, sync_names_above};
use crate::lease;
use crate::media::filesystem::Mount;
use crate::pool::PoolFile;
use crate::realm::Setup;
use crate::scope::Scope;
use crate::turn::Turn;

/// What the folder of a realm that is being made is called before its user's number.
const MAKING: &str = ".new-";

/// This user's private realm in a namespace; made if there is none, of this size, or of what the
/// namespace says.
pub(super) fn ensure(
    (pool, file): (&Path, &PoolFile),
    mount: Mount,
    name: &str,
    size: Option<u64>,
) -> Result<Setup> {
    let user = lease::user();
    if let Some(setup) = private_setup(pool, file, mount.clone(), name, user)? {
        return Ok(setup);
    }
    let _turn = Turn::take(pool)?;
    if let Some(setup) = private_setup(pool, file, mount.clone(), name, user)? {
        return Ok(setup);
    }
    let description = namespace_file(pool, name)?;
    let namespace = place(pool, name);
    check_real(pool, &namespace.join(PRIVATE))?;
    check_real(pool, &namespace.join(BIRTHS))?;
    let devices = PoolFile::read(pool)?.folders();
    for device in &devices {
        let outer = on_device(device, file, name);
        make_for_namespace(&namespace, &outer)?;
        let spans = outer.join(within(Scope::Private, user));
        // What this user died making; what is not the user's own is refused.
        if check_own(&spans, user)? {
            fs::remove_dir_all(&spans)
                .map_err(|e| Error::os(format!("removing {}", spans.display()), &e))?;
        }
    }
    let temporary = namespace.join(PRIVATE).join(format!("{MAKING}{user}"));
    if check_own(&temporary, user)? {
        fs::remove_dir_all(&temporary)
            .map_err(|e| Error::os(format!("removing {}", temporary.display()), &e))?;
    }
    let new = NewRealm {
        pool,
        namespace: &namespace,
        name,
        at: &temporary,
        place: within(Scope::Private, user),
        scope: Scope::Private,
        modes: (0o700, 0o600),
        group: false,
        root: Some(description.root),
        size: size.unwrap_or(description.size),
        devices: &devices,
        mount: mount.clone(),
    };
    let dir = namespace.join(within(Scope::Private, user));
    let made = build_realm(file, &new).and_then(|_| {
        fs::rename(&temporary, &dir)
            .map_err(|e| Error::os(format!("naming the private realm {}", dir.display()), &e))?;
        sync_names_above(&dir).inspect_err(|_| drop(fs::rename(&dir, &temporary)))
    });
    if let Err(error) = made {
        let _ = fs::remove_dir_all(&temporary);
        for device in &devices {
            let spans = on_device(device, file, name).join(within(Scope::Private, user));
            let _ = fs::remove_dir_all(spans);
        }
        return Err(error);
    }
    match private_setup(pool, file, mount, name, user)? {
        Some(setup) => Ok(setup),
        None => Err(Error::new(
            Kind::NotFound,
            format!("{} was removed as soon as it was made", dir.display()),
        )),
    }
}
