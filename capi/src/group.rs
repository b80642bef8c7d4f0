//! Groups: names for members, nested. Where a member is named, a path may stand.

use std::ffi::c_char;

use engram::{Error, Found, Gid, Kind, Member, Namespace, Result, Scope};

use crate::error::{Status, c_string, guard};
use crate::list::{List, MemberKind};
use crate::raw;

/// A group.
pub struct Group {
    pub(crate) namespace: Namespace,
    pub(crate) gid: Gid,
}

/// How many members are looked at in one go.
const PIECE: usize = 4096;

impl Group {
    /// The member at a path; the group itself at NULL or "".
    pub(crate) fn member(&self, path: *const c_char) -> Result<Member> {
        let path = raw::text_or("path", path, "")?;
        if path.is_empty() {
            return Ok(Member::Group(self.gid));
        }
        self.namespace.lookup(self.gid, path)?.ok_or_else(|| missing(path))
    }
}

/// The error that there is nothing at a path.
pub(crate) fn missing(path: &str) -> Error {
    Error::new(
        Kind::NotFound,
        format!("there is nothing at {path:?}: create it, or look at a list"),
    )
}

/// Makes a group, of a scope if one is given; else it has that of the group that it is made in.
pub(crate) fn made(
    group: *const Group,
    path: *const c_char,
    exist_ok: bool,
    scope: Option<Scope>,
    new: *mut *mut Group,
) -> Result<()> {
    let out = if new.is_null() { None } else { Some(raw::out("new", new)?) };
    let (group, path) = (raw::of("group", group)?, raw::text("path", path)?);
    let gid = group.namespace.create_group(group.gid, path, &[], &[], exist_ok, scope)?;
    if let Some(out) = out {
        out.set(raw::give(Group { namespace: group.namespace.clone(), gid }));
    }
    Ok(())
}

/// Makes a group, and the groups above it that are missing. `new` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_group_create(
    group: *const Group,
    path: *const c_char,
    new: *mut *mut Group,
) -> Status {
    guard(|| made(group, path, false, None, new))
}

/// Gives a group, and makes it if it is not there. `found` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_group_require(
    group: *const Group,
    path: *const c_char,
    found: *mut *mut Group,
) -> Status {
    guard(|| made(group, path, true, None, found))
}

/// Gives a group that exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_group_open(
    group: *const Group,
    path: *const c_char,
    found: *mut *mut Group,
) -> Status {
    guard(|| {
        let out = raw::out("found", found)?;
        let group = raw::of("group", group)?;
        match group.member(path)? {
            Member::Group(gid) => {
                out.set(raw::give(Group { namespace: group.namespace.clone(), gid }));
                Ok(())
            }
            Member::Object(_) => {
                let path = raw::text("path", path)?;
                Err(raw::argument(format!("{path:?} is an array or a blob, and no group")))
            }
        }
    })
}

/// The group's id; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_group_gid(group: *const Group) -> u64 {
    raw::of("group", group).map_or(0, |group| group.gid)
}

/// Gives a group's path from the root of its namespace, in a string to be freed. The path of the
/// root is "".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_group_path(group: *const Group, path: *mut *mut c_char) -> Status {
    guard(|| {
        let out = raw::out("path", path)?;
        let group = raw::of("group", group)?;
        let path = group.namespace.path_of(Member::Group(group.gid))?;
        out.set(c_string(path).into_raw());
        Ok(())
    })
}

/// Lists a group's members in byte order of their names, each with its id and kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_group_list(group: *const Group, members: *mut *mut List) -> Status {
    guard(|| {
        let out = raw::out("members", members)?;
        let group = raw::of("group", group)?;
        let mut list = List::default();
        let mut last = None;
        loop {
            let piece = group.namespace.list_found(group.gid, last.as_deref(), PIECE)?;
            let whole = piece.len() == PIECE;
            last = piece.last().map(|(name, _)| name.clone());
            for (name, found) in piece {
                match found {
                    Found::Group(gid) => list.push(name, gid, MemberKind::Group),
                    Found::Object(info) => list.push(name, info.oid, MemberKind::of(info.class)?),
                }
            }
            if !whole {
                break;
            }
        }
        out.set(raw::give(list));
        Ok(())
    })
}

/// Gives the id and the kind of the member at a path. The kind is `ENGRAM_MEMBER_KIND_NOTHING` if
/// there is none. `id` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_lookup(
    group: *const Group,
    path: *const c_char,
    id: *mut u64,
    kind: *mut MemberKind,
) -> Status {
    guard(|| {
        let out = raw::out("kind", kind)?;
        let (group, path) = (raw::of("group", group)?, raw::text("path", path)?);
        let (kind, found) = match group.namespace.find(group.gid, path)? {
            None => (MemberKind::Nothing, 0),
            Some(Found::Group(gid)) => (MemberKind::Group, gid),
            Some(Found::Object(info)) => (MemberKind::of(info.class)?, info.oid),
        };
        if !id.is_null() {
            raw::out("id", id)?.set(found);
        }
        out.set(kind);
        Ok(())
    })
}

/// Deletes a member. A group is deleted with everything in it. Views of values stay valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_delete(group: *const Group, path: *const c_char) -> Status {
    guard(|| {
        let (group, path) = (raw::of("group", group)?, raw::text("path", path)?);
        group.namespace.delete(group.gid, path)
    })
}

/// Gives a member another name, in the same group or in another of the same namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_move(
    group: *const Group,
    old_path: *const c_char,
    new_group: *const Group,
    new_path: *const c_char,
) -> Status {
    guard(|| {
        let (from, to) = (raw::of("group", group)?, raw::of("new_group", new_group)?);
        let (old, new) = (raw::text("old_path", old_path)?, raw::text("new_path", new_path)?);
        let place = |group: &Group| {
            let space = &group.namespace;
            (space.uuid().to_owned(), space.pool_path().to_owned(), space.namespace().to_owned())
        };
        if place(from) != place(to) {
            return Err(raw::argument(format!(
                "{old:?} is in namespace {:?} and {new:?} would be in {:?} of {}: nothing moves \
                 from one namespace to another",
                from.namespace.namespace(),
                to.namespace.namespace(),
                to.namespace.pool_path().display()
            )));
        }
        from.namespace.rename(from.gid, old, to.gid, new)
    })
}

/// Frees a group's handle. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_group_free(group: *mut Group) {
    drop(raw::take(group));
}
