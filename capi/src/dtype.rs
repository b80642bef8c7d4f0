//! Types of items: those of C's numbers, and structures of them.
//!
//! The types of numbers are the library's and live for ever; a structure is made by its user, field
//! by field, at the offsets that `offsetof` gives.

use std::ffi::{CString, c_char, c_int};

use engram::DType as Engine;
use engram::dtype::Field;

use crate::error::{Status, c_string, guard};
use crate::raw::{self, argument};

/// The types of numbers, in native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Scalar {
    /// None of these: a structure, strings, dates, another byte order.
    Other = 0,
    /// `bool`
    Bool = 1,
    /// `int8_t`
    I8 = 2,
    /// `int16_t`
    I16 = 3,
    /// `int32_t`
    I32 = 4,
    /// `int64_t`
    I64 = 5,
    /// `uint8_t`
    U8 = 6,
    /// `uint16_t`
    U16 = 7,
    /// `uint32_t`
    U32 = 8,
    /// `uint64_t`
    U64 = 9,
    /// Half precision, two bytes.
    F16 = 10,
    /// `float`
    F32 = 11,
    /// `double`
    F64 = 12,
    /// `float _Complex`
    C64 = 13,
    /// `double _Complex`
    C128 = 14,
}

const ALL: [Scalar; 14] = [
    Scalar::Bool,
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::U64,
    Scalar::F16,
    Scalar::F32,
    Scalar::F64,
    Scalar::C64,
    Scalar::C128,
];

/// The type of the items of an array or an attribute.
pub struct DType {
    engine: Engine,
    /// The fields' names, as C has them.
    names: Vec<CString>,
    /// The fields' types.
    fields: Vec<DType>,
}

const fn scalar(kind: u8, size: u32) -> DType {
    let order = if size == 1 { b'|' } else { b'<' };
    DType { engine: Engine::scalar(kind, order, size), names: Vec::new(), fields: Vec::new() }
}

/// In the order of `Scalar`, from `Bool` on.
static SCALARS: [DType; ALL.len()] = [
    scalar(b'b', 1),
    scalar(b'i', 1),
    scalar(b'i', 2),
    scalar(b'i', 4),
    scalar(b'i', 8),
    scalar(b'u', 1),
    scalar(b'u', 2),
    scalar(b'u', 4),
    scalar(b'u', 8),
    scalar(b'f', 2),
    scalar(b'f', 4),
    scalar(b'f', 8),
    scalar(b'c', 8),
    scalar(b'c', 16),
];

impl DType {
    /// With all its fields as C asks for them.
    pub(crate) fn new(engine: Engine) -> DType {
        let (mut names, mut fields) = (Vec::new(), Vec::new());
        if let Engine::Struct { fields: all, .. } = &engine {
            for field in all {
                names.push(c_string(field.name.as_str()));
                fields.push(DType::new(field.dtype.clone()));
            }
        }
        DType { engine, names, fields }
    }

    /// As the engine has it.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// Gives the type of a number. It belongs to the library, and is never freed. NULL for an unknown
/// number.
#[unsafe(no_mangle)]
pub extern "C" fn engram_dtype_scalar(scalar: c_int) -> *const DType {
    let place = usize::try_from(scalar).ok().and_then(|number| number.checked_sub(1));
    place.and_then(|place| SCALARS.get(place)).map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Begins a structure of `size` bytes, padding included (`sizeof`). Fields are added to it with
/// `engram_dtype_add_field`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_struct(size: usize, dtype: *mut *mut DType) -> Status {
    guard(|| {
        let out = raw::out("dtype", dtype)?;
        let size = u32::try_from(size)
            .map_err(|_| argument(format!("a structure of {size} bytes is too large")))?;
        let engine = Engine::Struct { size, align: false, fields: Vec::new() };
        engine.validate()?;
        out.set(raw::give(DType::new(engine)));
        Ok(())
    })
}

/// Adds a field to a structure, at an offset (`offsetof`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_add_field(
    dtype: *mut DType,
    name: *const c_char,
    offset: usize,
    field: *const DType,
) -> Status {
    guard(|| {
        let (name, field) = (raw::text("name", name)?, raw::of("field", field)?.engine.clone());
        let dtype = raw::of_mut("dtype", dtype)?;
        let offset = u32::try_from(offset)
            .map_err(|_| argument(format!("field {name:?} at byte {offset} is too far")))?;
        let mut engine = dtype.engine.clone();
        let Engine::Struct { fields, .. } = &mut engine else {
            return Err(argument(format!(
                "field {name:?} is added to {}, which is no structure",
                dtype.engine.text()
            )));
        };
        fields.push(Field { name: name.to_owned(), title: None, offset, dtype: field });
        engine.validate()?;
        *dtype = DType::new(engine);
        Ok(())
    })
}

/// Gives the type of a field that is itself an array, such as `double v[3]` in a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_sub(
    base: *const DType,
    ndim: usize,
    shape: *const u64,
    dtype: *mut *mut DType,
) -> Status {
    guard(|| {
        let out = raw::out("dtype", dtype)?;
        let base = Box::new(raw::of("base", base)?.engine.clone());
        let engine = Engine::Sub { base, shape: raw::lengths("shape", shape, ndim)?.to_vec() };
        engine.validate()?;
        out.set(raw::give(DType::new(engine)));
        Ok(())
    })
}

/// Which type of number this is; `ENGRAM_SCALAR_OTHER` for any other type, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_which(dtype: *const DType) -> Scalar {
    let Ok(dtype) = raw::of("dtype", dtype) else { return Scalar::Other };
    let place = SCALARS.iter().position(|known| known.engine == dtype.engine);
    place.map_or(Scalar::Other, |place| ALL[place])
}

/// The number of bytes of one item; 0 for strings of variable length, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_itemsize(dtype: *const DType) -> usize {
    raw::of("dtype", dtype).map_or(0, |dtype| dtype.engine.itemsize() as usize)
}

/// The number of a structure's fields; 0 for any other type, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_nfields(dtype: *const DType) -> usize {
    raw::of("dtype", dtype).map_or(0, |dtype| dtype.fields.len())
}

/// Gives a field's name, offset and type. Name and type belong to the dtype. Each output may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_field(
    dtype: *const DType,
    at: usize,
    name: *mut *const c_char,
    offset: *mut usize,
    field: *mut *const DType,
) -> Status {
    guard(|| {
        let dtype = raw::of("dtype", dtype)?;
        let Engine::Struct { fields, .. } = &dtype.engine else {
            return Err(argument(format!("{} has no fields", dtype.engine.text())));
        };
        let Some(found) = fields.get(at) else {
            return Err(argument(format!("field {at} of a structure of {}", fields.len())));
        };
        if !name.is_null() {
            raw::out("name", name)?.set(dtype.names[at].as_ptr());
        }
        if !offset.is_null() {
            raw::out("offset", offset)?.set(found.offset as usize);
        }
        if !field.is_null() {
            raw::out("field", field)?.set(&raw const dtype.fields[at]);
        }
        Ok(())
    })
}

/// Whether two types have the same items: the same bytes, and the same names of fields.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_equal(one: *const DType, other: *const DType) -> bool {
    match (raw::of("one", one), raw::of("other", other)) {
        (Ok(one), Ok(other)) => same(&one.engine, &other.engine),
        _ => false,
    }
}

/// Whether items are the same: that numpy calls a structure aligned says nothing of its bytes.
pub(crate) fn same(one: &Engine, other: &Engine) -> bool {
    match (one, other) {
        (
            Engine::Struct { size, fields, .. },
            Engine::Struct { size: other_size, fields: others, .. },
        ) => {
            let alike = |(a, b): (&Field, &Field)| {
                a.name == b.name && a.offset == b.offset && same(&a.dtype, &b.dtype)
            };
            size == other_size
                && fields.len() == others.len()
                && fields.iter().zip(others).all(alike)
        }
        (Engine::Sub { base, shape }, Engine::Sub { base: other, shape: others }) => {
            shape == others && same(base, other)
        }
        _ => one == other,
    }
}

/// Gives the type as numpy writes it, such as "float64", in a string to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_text(dtype: *const DType, text: *mut *mut c_char) -> Status {
    guard(|| {
        let out = raw::out("text", text)?;
        out.set(c_string(raw::of("dtype", dtype)?.engine.text()).into_raw());
        Ok(())
    })
}

/// Frees a type that `engram_dtype_struct` or `engram_dtype_sub` has made. NULL and types that
/// belong to the library are allowed; nothing is done to them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_free(dtype: *mut DType) {
    if !SCALARS.as_ptr_range().contains(&dtype.cast_const()) {
        drop(raw::take(dtype));
    }
}
