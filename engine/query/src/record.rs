//! The truth: whether a query is true of an object, by its record.
//!
//! Whatever the index cannot decide is decided here, and everything where there is no index: in
//! the tail, in the queue, in a batch, by brute force. So what this says of a record, columns must
//! say too.
//!
//! An object of mode `none` is found by its built-in fields and its groups alone: to a query it
//! has no attributes.

use std::borrow::Cow;
use std::collections::HashMap;

use super::compile::{About, Condition, GroupField, Leaf};
use super::groups::Groups;
use super::predicate::Predicate;
use crate::ast::Builtin;
use engram_base::dtype::shape_text;
use engram_base::error::Result;
use engram_base::id::Gid;
use engram_base::user;
use engram_columns::cell::{Cell, Cells, cells_of, cells_of_part};
use engram_columns::column_key::unsigned;
use engram_index::extract;
use engram_records::attrs;
use engram_records::attrs::KeyId;
use engram_records::index_mode::IndexMode;
use engram_records::object::Record;

/// Judges records.
pub struct Judge<'a> {
    /// What is known of groups.
    pub groups: Groups<'a>,
    users: Users,
}

/// Users by their numbers.
#[derive(Default)]
pub(crate) struct Users(HashMap<u32, Option<String>>);

impl Users {
    /// The name, where the user has one here.
    pub(crate) fn name(&mut self, uid: u32) -> Option<&str> {
        self.0.entry(uid).or_insert_with(|| user::name(uid)).as_deref()
    }

    /// Whether a test is true of an owner: by name, or by number.
    pub(crate) fn test(&mut self, predicate: &Predicate, uid: u32) -> bool {
        predicate.cell(&Cell::Int(i64::from(uid)))
            || self.name(uid).is_some_and(|name| predicate.cell(&Cell::Text(name.into())))
    }
}

impl<'a> Judge<'a> {
    /// A judge that knows nothing yet.
    pub(crate) fn new(groups: Groups<'a>) -> Self {
        Judge { groups, users: Users::default() }
    }

    /// Whether the condition is true of the object.
    pub(crate) fn is_true(&mut self, node: &Condition, record: &Record<'_>) -> Result<bool> {
        match node {
            Condition::Const(value) => Ok(*value),
            Condition::Not(inner) => Ok(!self.is_true(inner, record)?),
            Condition::All(parts) => {
                for part in parts {
                    if !self.is_true(part, record)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Condition::Any(parts) => {
                for part in parts {
                    if self.is_true(part, record)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Condition::Leaf(leaf) => self.leaf(leaf, record),
        }
    }

    fn leaf(&mut self, leaf: &Leaf, record: &Record<'_>) -> Result<bool> {
        let predicate = &leaf.predicate;
        match &leaf.about {
            About::Attr(key) => {
                Ok(attr(record, *key)?.is_some_and(|cells| predicate.cells(&cells)))
            }
            About::Part(key, parts) => {
                Ok(part(record, *key, parts)?.is_some_and(|cells| predicate.cells(&cells)))
            }
            About::Name => Ok(predicate.cell(&Cell::Text(record.name.into()))),
            About::Path(_) => {
                let path = self.groups.path_of(record.parent, record.name)?;
                Ok(predicate.cell(&Cell::Text(path.into())))
            }
            About::Builtin(Builtin::Owner) => Ok(self.is_owner(predicate, record.owner)),
            About::Builtin(builtin) => Ok(predicate.cell(&builtin_cell(record, *builtin)?)),
            About::Group(field) => self.groups.judge(leaf, field, record.parent),
        }
    }

    /// Whether a test is true of an owner.
    pub(crate) fn is_owner(&mut self, predicate: &Predicate, uid: u32) -> bool {
        self.users.test(predicate, uid)
    }

    /// What an object is ordered by; `None` where it lacks that.
    pub(crate) fn order_cell(
        &mut self,
        about: &About,
        record: &Record<'_>,
    ) -> Result<Option<Cell<'static>>> {
        let text = |text: &str| Some(Cell::Text(Cow::Owned(text.to_owned())));
        Ok(match about {
            About::Attr(key) => attr(record, *key)?.map(one),
            About::Part(key, parts) => part(record, *key, parts)?.map(one),
            About::Name => text(record.name),
            About::Path(_) => {
                Some(Cell::Text(self.groups.path_of(record.parent, record.name)?.into()))
            }
            About::Group(field) => self.group_cell(field, record.parent)?,
            About::Builtin(Builtin::Owner) => match self.users.name(record.owner) {
                Some(name) => text(name),
                None => Some(Cell::Int(i64::from(record.owner))),
            },
            About::Builtin(Builtin::Scope) => text(self.groups.scope().as_str()),
            About::Builtin(builtin) => Some(builtin_cell(record, *builtin)?.into_owned()),
        })
    }
}

impl Judge<'_> {
    /// The path of what has this name in a group, if the group is there.
    pub(crate) fn path_cell(&mut self, group: Gid, name: &str) -> Result<Option<Cell<'static>>> {
        Ok(Some(Cell::Text(self.groups.path_of(group, name)?.into())))
    }

    /// What an object is ordered by that lies in a group, where only the group counts.
    pub(crate) fn group_cell(
        &mut self,
        field: &GroupField,
        group: Gid,
    ) -> Result<Option<Cell<'static>>> {
        match field {
            GroupField::Attr(key, parts) => Ok(self.groups.attr(group, *key, parts)?.map(one)),
            _ => Ok(Some(Cell::Text(self.groups.path(group)?.to_owned().into()))),
        }
    }

    /// What an object is ordered by, by its owner's uid.
    pub(crate) fn owner_cell(&mut self, uid: &Cell<'_>) -> Option<Cell<'static>> {
        let Cell::Int(number) = uid else { return None };
        let name = u32::try_from(*number).ok().and_then(|uid| self.users.name(uid));
        Some(name.map_or(Cell::Int(*number), |name| Cell::Text(name.to_owned().into())))
    }
}

/// What a value is ordered as: several items are in no order, and come after what is.
fn one(cells: Cells<'_>) -> Cell<'static> {
    match cells {
        Cells::One(cell) | Cells::Item(cell) => cell.into_owned(),
        Cells::Many(_) => Cell::Other,
    }
}

/// The attributes that queries see.
pub(crate) fn seen_attrs<'r>(record: &Record<'r>) -> &'r [u8] {
    if record.index == IndexMode::None { &[] } else { record.attrs }
}

/// The attribute, as queries see it.
pub(crate) fn attr<'r>(record: &Record<'r>, key: KeyId) -> Result<Option<Cells<'r>>> {
    for entry in attrs::entries(seen_attrs(record)) {
        let entry = entry?;
        if entry.key == key {
            return cells_of(&entry).map(Some);
        }
    }
    Ok(None)
}

/// A field of the attribute, if it has a structure with that field.
fn part<'r>(record: &Record<'r>, key: KeyId, parts: &[String]) -> Result<Option<Cells<'r>>> {
    for entry in attrs::entries(seen_attrs(record)) {
        let entry = entry?;
        if entry.key == key {
            return cells_of_part(&entry, parts);
        }
    }
    Ok(None)
}

/// A built-in field that the record alone has.
pub(crate) fn builtin_cell(record: &Record<'_>, builtin: Builtin) -> Result<Cell<'static>> {
    let shape = || extract::shape(record);
    Ok(match builtin {
        Builtin::Owner => Cell::Int(i64::from(record.owner)),
        Builtin::Dtype => Cell::Text(extract::dtype_text(record)?),
        Builtin::Shape => Cell::Text(shape_text(&shape()).into()),
        Builtin::Ndim => Cell::Int(shape().len() as i64),
        Builtin::Size => unsigned(extract::size(&shape())),
        Builtin::Nbytes => unsigned(record.stored.nbytes()),
        Builtin::Created => Cell::Time(record.created),
        Builtin::Modified => Cell::Time(record.modified),
        // `compile` makes something else of these.
        Builtin::Name | Builtin::Path | Builtin::Group | Builtin::Scope => Cell::Other,
    })
}
