//! Arrays and blobs: making them, and what is known of them.

use std::ffi::{CString, c_char, c_void};
use std::{ptr, thread};

use engram::dtype::shape_text;
use engram::{
    Class, DType as EngineDType, Error, Found, Kind, Layout, LockMode, Member, Namespace,
    NewObject, ObjectInfo, Oid, Result,
};

use crate::dtype::{DType, same};
use crate::error::{Status, c_string, guard};
use crate::group::{Group, missing};
use crate::list::MemberKind;
use crate::options::Options;
use crate::raw::{self, Out, argument};

/// An array or a blob. Its type and shape are those of the moment when the handle was made or
/// refreshed. The type of an object never changes.
pub struct Object {
    pub(crate) namespace: Namespace,
    pub(crate) oid: Oid,
    kind: MemberKind,
    pub(crate) shape: Vec<u64>,
    dtype: DType,
    nbytes: u64,
    name: CString,
    chunks: Vec<u64>,
    codec: CString,
}

impl Object {
    /// A handle of what is known of an object.
    pub(crate) fn new(namespace: &Namespace, info: ObjectInfo) -> Result<Object> {
        let kind = MemberKind::of(info.class)?;
        let shape = if info.class == Class::Blob { vec![info.nbytes] } else { info.shape };
        let (chunks, codec) = match info.layout {
            Layout::Contiguous => (Vec::new(), c_string("")),
            Layout::Chunked { chunks, codec } => (chunks, c_string(codec.to_string())),
        };
        Ok(Object {
            namespace: namespace.clone(),
            oid: info.oid,
            kind,
            shape,
            dtype: DType::new(info.dtype),
            nbytes: info.nbytes,
            name: c_string(info.name),
            chunks,
            codec,
        })
    }

    /// Looks again.
    fn refresh(&mut self) -> Result<()> {
        *self = Object::new(&self.namespace, self.namespace.object(self.oid)?)?;
        Ok(())
    }

    /// What it is.
    pub(crate) fn kind(&self) -> MemberKind {
        self.kind
    }
}

/// What C says of a new array.
pub(crate) struct Request<'a> {
    pub(crate) group: &'a Group,
    pub(crate) path: &'a str,
    pub(crate) new: NewObject,
    pub(crate) options: Option<&'a Options>,
}

impl Request<'_> {
    /// How it is placed.
    pub(crate) fn placement(&self) -> engram::Placement {
        self.options.map(|options| options.placement).unwrap_or_default()
    }

    /// The number of bytes of the object's value.
    pub(crate) fn nbytes(&self) -> Result<u64> {
        self.new.shape.iter().try_fold(self.new.dtype.itemsize(), |bytes, length| {
            let bytes = bytes.checked_mul(*length).filter(|bytes| i64::try_from(*bytes).is_ok());
            let shape = &self.new.shape;
            bytes.ok_or_else(|| argument(format!("an array of shape {shape:?} is too large")))
        })
    }

    /// Makes it, of zeros or unset.
    fn create(&self) -> Result<Oid> {
        let (Group { namespace, gid }, place) = (self.group, self.placement());
        // What nobody has written of a chunked array is zeros, and takes no room.
        let chunked = self.new.layout != Layout::Contiguous;
        if self.options.is_some_and(|options| options.unset) && !chunked {
            let nbytes = self.nbytes()?;
            if nbytes > engram::INLINE_BYTES_MAX {
                return namespace.allocate(*gid, self.path, &self.new, nbytes, place)?.publish();
            }
        }
        namespace.create_zeroed(*gid, self.path, &self.new, place)
    }

    /// The array that is there, if it is as asked.
    fn there(&self) -> Result<Option<Oid>> {
        let found = self.group.namespace.find(self.group.gid, self.path)?;
        let info = match found {
            None => return Ok(None),
            Some(Found::Object(info)) if info.class == Class::Array => info,
            Some(_) => {
                return Err(Error::new(
                    Kind::Exists,
                    format!("{:?} is there, and no array of a fixed-size type", self.path),
                ));
            }
        };
        if info.shape == self.new.shape && same(&info.dtype, &self.new.dtype) {
            return Ok(Some(info.oid));
        }
        Err(Error::new(
            Kind::Exists,
            format!(
                "{:?} is {} of shape {}, and {} of shape {} was asked for: delete it first, or \
                 use another name",
                self.path,
                info.dtype.text(),
                shape_text(&info.shape),
                self.new.dtype.text(),
                shape_text(&self.new.shape)
            ),
        ))
    }

    /// Gives the array that is there, or makes it. Of many who do so at once, one makes it: it
    /// holds the group's lock meanwhile, so that no more space is taken than one array has.
    fn require(&self) -> Result<Oid> {
        if let Some(oid) = self.there()? {
            return Ok(oid);
        }
        let mut pause = |time| {
            thread::sleep(time);
            Ok(())
        };
        let group = Member::Group(self.group.gid);
        // Who holds it for reading in this thread is let through: the name is taken once all the
        // same, at the price of space that is taken twice for a moment.
        let _lock = self.group.namespace.lock(group, LockMode::Write, None, &mut pause);
        loop {
            if let Some(oid) = self.there()? {
                return Ok(oid);
            }
            match self.create() {
                Err(error) if error.kind() == Kind::Exists => {}
                made => return made,
            }
        }
    }
}

/// What C says of a new array, as the engine has it.
pub(crate) fn request<'a>(
    group: *const Group,
    path: *const c_char,
    dtype: *const DType,
    ndim: usize,
    shape: *const u64,
    options: *const Options,
) -> Result<Request<'a>> {
    let dtype = raw::of("dtype", dtype)?.engine().clone();
    if dtype.is_text() || matches!(dtype, EngineDType::Sub { .. }) {
        let text = dtype.text();
        return Err(argument(format!(
            "an array of {text} cannot be made from C: give a number's \
                                     type or a structure"
        )));
    }
    let options: Option<&Options> = raw::of("options", options).ok();
    let shape = raw::lengths("shape", shape, ndim)?.to_vec();
    let layout = options.map(|options| options.layout(&shape, dtype.itemsize()));
    let new = NewObject {
        class: Class::Array,
        dtype,
        shape,
        layout: layout.unwrap_or_default(),
        dims: options.and_then(|options| options.dims.clone()),
        attrs: Vec::new(),
        origin: Vec::new(),
        properties: Vec::new(),
    };
    let (group, path) = (raw::of("group", group)?, raw::text("path", path)?);
    Ok(Request { group, path, new, options })
}

/// Where a handle of what is made is wanted: nowhere, if that is NULL.
pub(crate) fn wanted(object: *mut *mut Object) -> Result<Option<Out<*mut Object>>> {
    if object.is_null() { Ok(None) } else { raw::out("object", object).map(Some) }
}

/// Gives a handle of what was made.
pub(crate) fn hand(out: Option<Out<*mut Object>>, namespace: &Namespace, oid: Oid) -> Result<()> {
    if let Some(out) = out {
        out.set(raw::give(Object::new(namespace, namespace.object(oid)?)?));
    }
    Ok(())
}

/// Makes an array of zeros, or with unset values if `options` say so. `options` and `object` may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_array_create(
    group: *const Group,
    path: *const c_char,
    dtype: *const DType,
    ndim: usize,
    shape: *const u64,
    options: *const Options,
    object: *mut *mut Object,
) -> Status {
    guard(|| {
        let out = wanted(object)?;
        let request = request(group, path, dtype, ndim, shape, options)?;
        hand(out, &request.group.namespace, request.create()?)
    })
}

/// Gives the array at a path, and makes it as `engram_array_create` does if nothing is there. Many
/// processes may do so at once. If something else is there, or an array of another type or shape,
/// the status is `ENGRAM_STATUS_EXISTS`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_array_require(
    group: *const Group,
    path: *const c_char,
    dtype: *const DType,
    ndim: usize,
    shape: *const u64,
    options: *const Options,
    object: *mut *mut Object,
) -> Status {
    guard(|| {
        let out = wanted(object)?;
        let request = request(group, path, dtype, ndim, shape, options)?;
        hand(out, &request.group.namespace, request.require()?)
    })
}

/// Stores a whole array of `nbytes` bytes in C order. It is visible to all when this returns, and
/// not before. `options` and `object` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_array_put(
    group: *const Group,
    path: *const c_char,
    dtype: *const DType,
    ndim: usize,
    shape: *const u64,
    data: *const c_void,
    nbytes: usize,
    options: *const Options,
    object: *mut *mut Object,
) -> Status {
    guard(|| {
        let out = wanted(object)?;
        let request = request(group, path, dtype, ndim, shape, options)?;
        let data = raw::bytes("data", data, nbytes)?;
        let (Group { namespace, gid }, place) = (request.group, request.placement());
        hand(out, namespace, namespace.put(*gid, request.path, &request.new, data, place)?)
    })
}

/// Stores a blob. It is visible to all when this returns. `options` and `object` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_blob_put(
    group: *const Group,
    path: *const c_char,
    data: *const c_void,
    nbytes: usize,
    options: *const Options,
    object: *mut *mut Object,
) -> Status {
    guard(|| {
        let out = wanted(object)?;
        let (group, path) = (raw::of("group", group)?, raw::text("path", path)?);
        let options: Option<&Options> = raw::of("options", options).ok();
        let new = NewObject::blob();
        let data = raw::bytes("data", data, nbytes)?;
        let place = options.map(|options| options.placement).unwrap_or_default();
        let oid = group.namespace.put(group.gid, path, &new, data, place)?;
        hand(out, &group.namespace, oid)
    })
}

/// Gives a handle of the array or blob at a path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_open(
    group: *const Group,
    path: *const c_char,
    object: *mut *mut Object,
) -> Status {
    guard(|| {
        let out = raw::out("object", object)?;
        let (group, path) = (raw::of("group", group)?, raw::text("path", path)?);
        match group.namespace.find(group.gid, path)? {
            Some(Found::Object(info)) => {
                out.set(raw::give(Object::new(&group.namespace, info)?));
                Ok(())
            }
            Some(Found::Group(_)) => {
                Err(argument(format!("{path:?} is a group, and no array or blob")))
            }
            None => Err(missing(path)),
        }
    })
}

/// Gives a handle of the array or blob with an id, such as a query finds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_open_id(
    group: *const Group,
    oid: u64,
    object: *mut *mut Object,
) -> Status {
    guard(|| {
        let out = raw::out("object", object)?;
        let namespace = &raw::of("group", group)?.namespace;
        out.set(raw::give(Object::new(namespace, namespace.object(oid)?)?));
        Ok(())
    })
}

/// The object's id, which is unique in the pool and never used again; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_oid(object: *const Object) -> u64 {
    raw::of("object", object).map_or(0, |object| object.oid)
}

/// What the object is: an array, a blob or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_kind(object: *const Object) -> MemberKind {
    raw::of("object", object).map_or(MemberKind::Nothing, |object| object.kind)
}

/// The type of the object's items; NULL for NULL. The type belongs to the object's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_dtype(object: *const Object) -> *const DType {
    raw::of("object", object).map_or(ptr::null(), |object| &raw const object.dtype)
}

/// The number of the object's dimensions; 1 for a blob.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_ndim(object: *const Object) -> usize {
    raw::of("object", object).map_or(0, |object| object.shape.len())
}

/// The object's shape: one length for each dimension. It belongs to the object's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_shape(object: *const Object) -> *const u64 {
    raw::of("object", object).map_or(ptr::null(), |object| object.shape.as_ptr())
}

/// The number of bytes of the object's value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_nbytes(object: *const Object) -> u64 {
    raw::of("object", object).map_or(0, |object| object.nbytes)
}

/// The shape of a chunk: one length for each dimension of the array; NULL if the array lies in one
/// piece. It belongs to the object's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_chunks(object: *const Object) -> *const u64 {
    let chunks = raw::of("object", object).ok().map(|object| &object.chunks);
    chunks.filter(|chunks| !chunks.is_empty()).map_or(ptr::null(), Vec::as_ptr)
}

/// How each chunk is encoded, such as "shuffle+lz4"; "" if the array lies in one piece. The string
/// belongs to the object's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_codec(object: *const Object) -> *const c_char {
    raw::of("object", object).map_or(c"".as_ptr(), |object| object.codec.as_ptr())
}

/// Changes the lengths of a chunked array; the number of dimensions stays. Where the array grows it
/// holds zeros, and what is cut off is gone. Afterwards the handle has the new shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_array_resize(
    object: *mut Object,
    ndim: usize,
    shape: *const u64,
) -> Status {
    guard(|| {
        let object = raw::of_mut("object", object)?;
        object.namespace.reshape(object.oid, raw::lengths("shape", shape, ndim)?)?;
        object.refresh()
    })
}

/// Appends data to a chunked array along the dimension `axis`. `counts` has the lengths of the
/// data, one for each dimension. If several processes append at the same time, their data follow
/// one another. Afterwards the handle has the new shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_array_append(
    object: *mut Object,
    axis: usize,
    ndim: usize,
    counts: *const u64,
    data: *const c_void,
    nbytes: usize,
) -> Status {
    guard(|| {
        let object = raw::of_mut("object", object)?;
        let (counts, data) =
            (raw::lengths("counts", counts, ndim)?, raw::bytes("data", data, nbytes)?);
        object.namespace.append(object.oid, axis, counts, data)?;
        object.refresh()
    })
}

/// Updates what the handle knows of its object: another process may have changed the shape of a
/// chunked array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_refresh(object: *mut Object) -> Status {
    guard(|| raw::of_mut("object", object)?.refresh())
}

/// Gives the number of bytes that a value takes in the pool. For a chunked array, these are the
/// encoded bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_stored_nbytes(
    object: *const Object,
    nbytes: *mut u64,
) -> Status {
    guard(|| {
        let out = raw::out("nbytes", nbytes)?;
        let object = raw::of("object", object)?;
        out.set(object.namespace.stored_nbytes(object.oid)?);
        Ok(())
    })
}

/// The object's name when the handle was made. The string belongs to the object's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_name(object: *const Object) -> *const c_char {
    raw::of("object", object).map_or(c"".as_ptr(), |object| object.name.as_ptr())
}

/// Gives the object's path from the root of its namespace, in a string to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_path(
    object: *const Object,
    path: *mut *mut c_char,
) -> Status {
    guard(|| {
        let out = raw::out("path", path)?;
        let object = raw::of("object", object)?;
        let path = object.namespace.path_of(Member::Object(object.oid))?;
        out.set(c_string(path).into_raw());
        Ok(())
    })
}

/// Frees the handle of an object. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_free(object: *mut Object) {
    drop(raw::take(object));
}
