//! An object to be linked: what `put` was told, encoded before any lock is taken.

use std::borrow::Cow;

use crate::realm::Realm;
use crate::realm::precondition::Precondition;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Gid;
use engram_records::index_mode::IndexMode;
use engram_records::object;
use engram_records::object::{Class, Flags, NewObject, Placement, Record, Stored};
use engram_records::stamp::Stamp;

/// A new object's sections, encoded once.
struct Encoded<'a> {
    class: Class,
    /// The dtype, then the shape.
    sections: Vec<u8>,
    shape_at: usize,
    ndim: u8,
    dims: Vec<u8>,
    attrs: Vec<u8>,
    origin: Cow<'a, [u8]>,
    properties: Cow<'a, [u8]>,
}

/// An object to be linked: where, what, how.
pub(crate) struct Link<'a> {
    pub from: Gid,
    pub path: Cow<'a, str>,
    encoded: Encoded<'a>,
    pub overwrite: bool,
    pub index: Option<IndexMode>,
    pub read_only: bool,
    /// Whose it is to be; `None`: this process's user's.
    owner: Option<u32>,
    /// What being linked there relies on.
    pub precondition: Option<Precondition>,
}

impl<'a> Link<'a> {
    /// Encodes all but the value.
    pub(super) fn new(
        from: Gid,
        path: &'a str,
        new: &'a NewObject,
        attrs: Vec<u8>,
        placement: Placement,
        precondition: Option<&Precondition>,
    ) -> Result<Self> {
        let mut sections = Vec::with_capacity(32);
        if new.class != Class::Blob {
            new.dtype.encode(&mut sections);
        }
        let shape_at = sections.len();
        if shape_at > usize::from(u16::MAX) {
            fail!(Argument, "the dtype takes {shape_at} bytes to describe; at most 65535 fit");
        }
        object::encode_shape(&new.shape, &mut sections);
        let encoded = Encoded {
            class: new.class,
            sections,
            shape_at,
            ndim: new.shape.len() as u8,
            dims: object::encode_dims(new.dims.as_deref(), new.shape.len())?,
            attrs,
            origin: new.origin.as_slice().into(),
            properties: new.properties.as_slice().into(),
        };
        Ok(Link {
            from,
            path: path.into(),
            encoded,
            overwrite: placement.overwrite,
            index: placement.index,
            read_only: placement.read_only,
            owner: placement.owner,
            precondition: precondition.cloned(),
        })
    }

    /// Has it linked at another place of its realm, relying on what the handle relies on.
    pub(crate) fn aim(&mut self, realm: &Realm, group: Gid, path: String) {
        (self.from, self.path) = (group, path.into());
        self.precondition = realm.precondition().cloned();
    }

    /// The same, for keeps.
    pub(super) fn into_owned(self) -> Link<'static> {
        let origin = Cow::Owned(self.encoded.origin.into_owned());
        let properties = Cow::Owned(self.encoded.properties.into_owned());
        Link {
            path: Cow::Owned(self.path.into_owned()),
            encoded: Encoded { origin, properties, ..self.encoded },
            ..self
        }
    }

    /// The record, without parent and name.
    pub(super) fn record<'r>(&'r self, stored: Stored<'r>, stamp: Stamp) -> Record<'r> {
        let (dtype, shape) = self.encoded.sections.split_at(self.encoded.shape_at);
        Record {
            class: self.encoded.class,
            generation: 0,
            owner: self.owner.unwrap_or(stamp.owner),
            parent: 0,
            created: stamp.now,
            modified: stamp.now,
            name: "",
            dtype,
            ndim: self.encoded.ndim,
            shape,
            dims: &self.encoded.dims,
            attrs: &self.encoded.attrs,
            origin: &self.encoded.origin,
            properties: &self.encoded.properties,
            // Known once the parent is.
            index: IndexMode::default(),
            flags: Flags { read_only: self.read_only, ..Flags::default() },
            checked: stamp.checksums,
            stored,
        }
    }
}
