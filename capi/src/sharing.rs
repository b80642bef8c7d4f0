//! Scopes: who sees a member of a group, and moving it to others.

use std::ffi::{c_char, c_int};

use engram::{Result, Scope as Engine};

use crate::error::{Status, guard};
use crate::group::{Group, made};
use crate::options::Options;
use crate::raw::{self, argument};

/// Who sees a member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Scope {
    /// The user who made it.
    Private = 0,
    /// The namespace's owner, and its group where the namespace's mode lets that write.
    Shared = 1,
    /// All whom the namespace's mode admits. Nobody changes it.
    Published = 2,
}

const PRIVATE: c_int = Scope::Private as c_int;
const SHARED: c_int = Scope::Shared as c_int;

impl From<Engine> for Scope {
    fn from(scope: Engine) -> Self {
        match scope {
            Engine::Private => Scope::Private,
            Engine::Shared => Scope::Shared,
            Engine::Published => Scope::Published,
        }
    }
}

/// The scope of what is made, which C gives as a number.
fn of_new(scope: c_int) -> Result<Engine> {
    match scope {
        PRIVATE => Ok(Engine::Private),
        SHARED => Ok(Engine::Shared),
        other => Err(argument(format!(
            "scope is {other}: what is made is private (0) or shared (1), and published later"
        ))),
    }
}

/// Tells who sees the member at a path. With NULL or "", this is the group itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scope_of(
    group: *const Group,
    path: *const c_char,
    scope: *mut Scope,
) -> Status {
    guard(|| {
        let out = raw::out("scope", scope)?;
        let group = raw::of("group", group)?;
        out.set(group.namespace.scope_of(group.member(path)?)?.into());
        Ok(())
    })
}

/// Sets who sees what is made: `ENGRAM_SCOPE_PRIVATE` or `ENGRAM_SCOPE_SHARED`. If it is not set,
/// those see it who see its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_options_scope(options: *mut Options, scope: c_int) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.placement.scope = Some(of_new(scope)?);
        Ok(())
    })
}

/// Makes a group of a scope: `ENGRAM_SCOPE_PRIVATE` or `ENGRAM_SCOPE_SHARED`. What is made in it
/// has that scope, too, unless its options say another. `new` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_group_create_scoped(
    group: *const Group,
    path: *const c_char,
    scope: c_int,
    new: *mut *mut Group,
) -> Status {
    guard(|| made(group, path, false, Some(of_new(scope)?), new))
}

fn moved(group: *const Group, path: *const c_char, from: Engine, to: Engine) -> Status {
    guard(|| {
        let (group, path) = (raw::of("group", group)?, raw::text("path", path)?);
        group.namespace.transfer(group.gid, path, &[from], to).map(drop)
    })
}

/// Lets the namespace's owner and group see what is private at a path, a group with all that is
/// below it, all or nothing. They may change it, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scope_share(group: *const Group, path: *const c_char) -> Status {
    moved(group, path, Engine::Private, Engine::Shared)
}

/// Keeps what is shared at a path to its owner, all or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scope_unshare(group: *const Group, path: *const c_char) -> Status {
    moved(group, path, Engine::Shared, Engine::Private)
}

/// Lets all read what is at a path whom the namespace's mode admits, all or nothing. Nobody changes
/// it any more. Where nobody but the owner would read it, that is refused unless `closed` is true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scope_publish(
    group: *const Group,
    path: *const c_char,
    closed: bool,
) -> Status {
    guard(|| {
        let (group, path) = (raw::of("group", group)?, raw::text("path", path)?);
        group.namespace.publish(group.gid, path, closed).map(drop)
    })
}

/// Withdraws what is published at a path, all or nothing: it is shared again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scope_unpublish(
    group: *const Group,
    path: *const c_char,
) -> Status {
    moved(group, path, Engine::Published, Engine::Shared)
}
