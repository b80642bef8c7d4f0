//! Attributes: a key and a value, on groups and objects.
//!
//! A member is named by a group and a path from it; NULL or "" is the group itself.

use std::ffi::{c_char, c_void};

use engram::{DType as EngineDType, Error, Kind, Result, Value};

use crate::dtype::DType;
use crate::error::{Status, c_string, guard};
use crate::group::Group;
use crate::list::{List, MemberKind};
use crate::raw::{self, argument};

/// The value of an attribute at the moment when it was asked for.
pub struct Attribute {
    value: Value,
    dtype: DType,
}

fn set(group: *const Group, path: *const c_char, key: *const c_char, value: Value) -> Result<()> {
    let (group, key) = (raw::of("group", group)?, raw::text("key", key)?);
    group.namespace.set_attrs(group.member(path)?, &[(key.to_owned(), value)])
}

/// Sets an attribute to one number or structure (`ndim` 0), or to an array of them in C order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attr_set(
    group: *const Group,
    path: *const c_char,
    key: *const c_char,
    dtype: *const DType,
    ndim: usize,
    shape: *const u64,
    data: *const c_void,
    nbytes: usize,
) -> Status {
    guard(|| {
        let dtype = raw::of("dtype", dtype)?.engine().clone();
        if matches!(dtype, EngineDType::Sub { .. }) {
            return Err(argument(format!(
                "an attribute of {} cannot be set from C: give the item's type, and `shape`",
                dtype.text()
            )));
        }
        let shape = raw::lengths("shape", shape, ndim)?.to_vec();
        let data = raw::bytes("data", data, nbytes)?.to_vec();
        set(group, path, key, Value { dtype, shape, data })
    })
}

/// Sets an attribute to a string of `len` bytes of UTF-8. The string may contain NUL bytes, but not
/// end with one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attr_set_text(
    group: *const Group,
    path: *const c_char,
    key: *const c_char,
    text: *const c_char,
    len: usize,
) -> Status {
    guard(|| {
        let bytes = raw::bytes("text", text.cast(), len)?;
        let text = std::str::from_utf8(bytes)
            .map_err(|e| argument(format!("the attribute's text is not UTF-8: {e}")))?;
        set(group, path, key, Value::text(text))
    })
}

/// Sets an attribute to an array of strings, each of which ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attr_set_texts(
    group: *const Group,
    path: *const c_char,
    key: *const c_char,
    count: usize,
    texts: *const *const c_char,
) -> Status {
    guard(|| {
        // The offsets of all and the end, then the bytes.
        let mut data = vec![0; 8];
        let mut bytes = Vec::new();
        for text in raw::slice("texts", texts, count)? {
            bytes.extend_from_slice(raw::text("a text", *text)?.as_bytes());
            data.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        }
        data.append(&mut bytes);
        set(group, path, key, Value { dtype: EngineDType::Text, shape: vec![count as u64], data })
    })
}

/// Gives an attribute's value. If there is no such attribute, the status is
/// `ENGRAM_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attr_get(
    group: *const Group,
    path: *const c_char,
    key: *const c_char,
    attribute: *mut *mut Attribute,
) -> Status {
    guard(|| {
        let out = raw::out("attribute", attribute)?;
        let (group, key) = (raw::of("group", group)?, raw::text("key", key)?);
        let Some(value) = group.namespace.attr(group.member(path)?, key)? else {
            let path = raw::text_or("path", path, "")?;
            let message = format!("{path:?} has no attribute {key:?}");
            return Err(Error::new(Kind::NotFound, message));
        };
        let dtype = DType::new(value.dtype.clone());
        out.set(raw::give(Attribute { value, dtype }));
        Ok(())
    })
}

/// Removes an attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attr_delete(
    group: *const Group,
    path: *const c_char,
    key: *const c_char,
) -> Status {
    guard(|| {
        let (group, key) = (raw::of("group", group)?, raw::text("key", key)?);
        group.namespace.delete_attr(group.member(path)?, key)
    })
}

/// Lists the keys of a member's attributes, in byte order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attr_list(
    group: *const Group,
    path: *const c_char,
    keys: *mut *mut List,
) -> Status {
    guard(|| {
        let out = raw::out("keys", keys)?;
        let group = raw::of("group", group)?;
        let mut list = List::default();
        for (key, _) in group.namespace.attrs(group.member(path)?)? {
            list.push(key, 0, MemberKind::Nothing);
        }
        out.set(raw::give(list));
        Ok(())
    })
}

/// The type of the attribute's items; NULL for NULL. The type belongs to the attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attribute_dtype(attribute: *const Attribute) -> *const DType {
    raw::of("attribute", attribute).map_or(std::ptr::null(), |own| &raw const own.dtype)
}

/// The number of the attribute's dimensions; 0 for a single value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attribute_ndim(attribute: *const Attribute) -> usize {
    raw::of("attribute", attribute).map_or(0, |own| own.value.shape.len())
}

/// The attribute's shape: one length for each dimension. It belongs to the attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attribute_shape(attribute: *const Attribute) -> *const u64 {
    raw::of("attribute", attribute).map_or(std::ptr::null(), |own| own.value.shape.as_ptr())
}

/// The attribute's bytes, which belong to the attribute. For a single string, these are its
/// characters, without a NUL at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attribute_data(attribute: *const Attribute) -> *const c_void {
    raw::of("attribute", attribute).map_or(std::ptr::null(), |own| own.value.data.as_ptr().cast())
}

/// The number of the attribute's bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attribute_nbytes(attribute: *const Attribute) -> usize {
    raw::of("attribute", attribute).map_or(0, |own| own.value.data.len())
}

/// Gives one string of an attribute of strings: the item at `at` of an array, or a single string at
/// 0. The string is to be freed. `len` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attribute_text(
    attribute: *const Attribute,
    at: usize,
    text: *mut *mut c_char,
    len: *mut usize,
) -> Status {
    guard(|| {
        let out = raw::out("text", text)?;
        let bytes = text_at(&raw::of("attribute", attribute)?.value, at)?;
        if !len.is_null() {
            raw::out("len", len)?.set(bytes.len());
        }
        out.set(c_string(bytes).into_raw());
        Ok(())
    })
}

fn text_at(value: &Value, at: usize) -> Result<&[u8]> {
    if !value.dtype.is_text() {
        return Err(argument(format!("the attribute is {}, and no text", value.dtype.text())));
    }
    let count = value.shape.iter().product::<u64>() as usize;
    if at >= count {
        return Err(argument(format!("text {at} of an attribute of {count}")));
    }
    if value.shape.is_empty() {
        return Ok(&value.data);
    }
    let offset = |place: usize| {
        let eight = value.data.get(place * 8..place * 8 + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(eight)).ok()
    };
    let found = offset(at)
        .zip(offset(at + 1))
        .and_then(|(start, end)| value.data.get((count + 1) * 8..)?.get(start..end));
    found.ok_or_else(|| Error::new(Kind::Corrupt, "an attribute's strings are damaged"))
}

/// Frees an attribute's value. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_attribute_free(attribute: *mut Attribute) {
    drop(raw::take(attribute));
}
