//! Heads of objects as the engine has them.

use engram::{Class, DType, Gid, GroupInfo, Layout, NewObject, ObjectInfo, Result, Value};
use engram_parts::head::{Attr, Class as HeadClass, Head, Told};

/// The object that a head describes, with what a cluster keeps in its record.
pub fn object_of(head: Head, mark: &[u8]) -> Result<NewObject> {
    let class = match head.class {
        HeadClass::Array => Class::Array,
        HeadClass::Strings => Class::Strings,
        HeadClass::Blob => Class::Blob,
        HeadClass::Group => {
            let why = "a group has no value: make it as a group";
            return Err(engram::Error::new(engram::Kind::Argument, why));
        }
    };
    Ok(NewObject {
        class,
        dtype: head.dtype.unwrap_or_else(DType::bytes),
        shape: head.shape,
        dims: head.dims,
        attrs: values_of(head.attrs),
        origin: mark.to_vec(),
        properties: Vec::new(),
        layout: Layout::Contiguous,
    })
}

/// Attributes as the engine has them.
pub fn values_of(attrs: Vec<Attr>) -> Vec<(String, Value)> {
    let value = |attr: Attr| {
        let Attr { key, dtype, shape, data } = attr;
        (key, Value { dtype, shape, data })
    };
    attrs.into_iter().map(value).collect()
}

/// The engine's attributes as a head has them.
pub fn attrs_of(values: Vec<(String, Value)>) -> Vec<Attr> {
    let attr = |named: (String, Value)| {
        let (key, Value { dtype, shape, data }) = named;
        Attr { key, dtype, shape, data }
    };
    values.into_iter().map(attr).collect()
}

/// The head of an object that is there.
pub fn of_object(info: &ObjectInfo, attrs: Vec<(String, Value)>) -> Head {
    let class = match info.class {
        Class::Strings => HeadClass::Strings,
        Class::Blob => HeadClass::Blob,
        Class::Array | Class::Group | Class::Chunk => HeadClass::Array,
    };
    let told = Told {
        id: info.oid,
        generation: u64::from(info.generation),
        nbytes: info.nbytes,
        created: info.created,
        modified: info.modified,
        owner: u64::from(info.owner),
        scope: info.scope as u8,
        is_contiguous: info.layout == Layout::Contiguous,
    };
    Head {
        class,
        dtype: (class != HeadClass::Blob).then(|| info.dtype.clone()),
        shape: info.shape.clone(),
        dims: info.dims.clone(),
        attrs: attrs_of(attrs),
        told: Some(told),
    }
}

/// The head of a group that is there.
pub fn of_group(gid: Gid, info: &GroupInfo, attrs: Vec<(String, Value)>) -> Head {
    let told = Told {
        id: gid,
        created: info.created,
        modified: info.modified,
        owner: u64::from(info.owner),
        scope: info.scope as u8,
        ..Told::default()
    };
    Head { attrs: attrs_of(attrs), told: Some(told), ..bare_group(gid) }
}

/// The head of a group of which only its number is known.
pub fn bare_group(gid: Gid) -> Head {
    let told = Told { id: gid, ..Told::default() };
    Head { class: HeadClass::Group, told: Some(told), ..Head::default() }
}
