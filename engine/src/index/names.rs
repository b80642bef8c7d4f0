//! Names: a dictionary of the distinct leaf names of objects, and the number that each has.
//!
//! A row of `index_names` is `n` and the name, then its number. Numbers are given once and stay.

use super::family::take_number;
use super::look::Look;
use crate::catalog::{Table, WriteTxn};
use crate::error::Result;
use crate::fail;
use crate::realm::meta_u64;

/// The row of `meta` with the next name's number.
const NEXT_NAME: &[u8] = b"next_name";

fn key(name: &str) -> Vec<u8> {
    [b"n", name.as_bytes()].concat()
}

/// The numbers of names; new ones get theirs.
pub(crate) fn intern(txn: &mut WriteTxn<'_>, names: &[&str]) -> Result<Vec<u32>> {
    let mut numbers = Vec::with_capacity(names.len());
    for name in names {
        numbers.push(match number(txn, name)? {
            Some(number) => number,
            None => {
                let number = take_number(txn, NEXT_NAME)?;
                txn.put(Table::IndexNames, &key(name), &number.to_le_bytes())?;
                number
            }
        });
    }
    Ok(numbers)
}

/// The number of a name, if it has one.
pub(crate) fn number(look: &impl Look, name: &str) -> Result<Option<u32>> {
    match look.row(Table::IndexNames, &key(name))? {
        None => Ok(None),
        Some(row) => match <[u8; 4]>::try_from(row) {
            Ok(number) => Ok(Some(u32::from_le_bytes(number))),
            Err(_) => fail!(Corrupt, "the number of the name {name:?} has {} bytes", row.len()),
        },
    }
}

/// How many names there are.
pub(crate) fn count(look: &impl Look) -> Result<u64> {
    Ok(meta_u64(look.row(Table::Meta, NEXT_NAME)?)?.saturating_sub(1))
}
