//! Lists: what listings and queries give.

use std::ffi::{CString, c_char};

use engram::{Class, Error, Kind as ErrorKind, Namespace, Oid, Result};

use crate::error::{Status, c_string, guard};
use crate::raw::{self, argument};

/// What a member of a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum MemberKind {
    /// Nothing: there is no such member.
    Nothing = 0,
    /// A group.
    Group = 1,
    /// An array of items of a fixed size.
    Array = 2,
    /// Bytes.
    Blob = 3,
    /// An array of strings of variable length.
    Strings = 4,
    /// An array or a blob; the list does not say which.
    Object = 5,
}

impl MemberKind {
    /// Of an object.
    pub(crate) fn of(class: Class) -> Result<MemberKind> {
        match class {
            Class::Array => Ok(MemberKind::Array),
            Class::Blob => Ok(MemberKind::Blob),
            Class::Strings => Ok(MemberKind::Strings),
            Class::Group | Class::Chunk => {
                Err(Error::new(ErrorKind::Corrupt, "an object has a record of another kind"))
            }
        }
    }
}

struct Entry {
    text: CString,
    id: u64,
    kind: MemberKind,
}

/// Names or paths, each with an id if it has one.
#[derive(Default)]
pub struct List {
    entries: Vec<Entry>,
}

impl List {
    /// Adds one.
    pub(crate) fn push(&mut self, text: String, id: u64, kind: MemberKind) {
        self.entries.push(Entry { text: c_string(text), id, kind });
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Of the paths of objects; of those that are gone there is nothing to tell.
    pub(crate) fn of_objects(namespace: &Namespace, oids: &[Oid]) -> Result<List> {
        let mut list = List::default();
        for (oid, path) in oids.iter().zip(namespace.paths_of(oids)?) {
            if let Some(path) = path {
                list.push(path, *oid, MemberKind::Object);
            }
        }
        Ok(list)
    }

    /// Of texts alone.
    pub(crate) fn of_texts(texts: impl IntoIterator<Item = String>) -> List {
        let mut list = List::default();
        texts.into_iter().for_each(|text| list.push(text, 0, MemberKind::Nothing));
        list
    }
}

fn entry<'a>(list: *const List, at: usize) -> Result<&'a Entry> {
    let all = &raw::of("list", list)?.entries;
    let of = all.len();
    all.get(at).ok_or_else(|| argument(format!("entry {at} of a list of {of}")))
}

/// The number of a list's entries; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_list_len(list: *const List) -> usize {
    raw::of("list", list).map_or(0, |list| list.entries.len())
}

/// Gives an entry's name or path, its id (0 if it has none), and its kind. The text belongs to the
/// list. Each output may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_list_at(
    list: *const List,
    at: usize,
    text: *mut *const c_char,
    id: *mut u64,
    kind: *mut MemberKind,
) -> Status {
    guard(|| {
        let entry = entry(list, at)?;
        if !text.is_null() {
            raw::out("text", text)?.set(entry.text.as_ptr());
        }
        if !id.is_null() {
            raw::out("id", id)?.set(entry.id);
        }
        if !kind.is_null() {
            raw::out("kind", kind)?.set(entry.kind);
        }
        Ok(())
    })
}

/// Frees a list with its texts. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_list_free(list: *mut List) {
    drop(raw::take(list));
}
