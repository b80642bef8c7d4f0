//! Chunked arrays through the view: each operation in the realm that has the array.

use super::Namespace;
use crate::namespace::retry::Doing;
use engram_base::error::Result;
use engram_base::id::{Member, Oid};

impl Namespace {
    pub(super) fn load_box(
        &self,
        oid: Oid,
        offsets: &[u64],
        counts: &[u64],
        out: &mut [u8],
    ) -> Result<()> {
        // Run again where the array moves meanwhile, so the buffer is lent each time.
        let out = std::cell::RefCell::new(out);
        self.in_owning_realm(Member::Object(oid), |realm| {
            realm.load_box(oid, offsets, counts, &mut out.borrow_mut())
        })
    }

    pub(super) fn store_box(
        &self,
        oid: Oid,
        offsets: &[u64],
        counts: &[u64],
        data: &[u8],
    ) -> Result<()> {
        self.write_in_owning_realm(Member::Object(oid), Doing::Changing, |realm| {
            realm.store_box(oid, offsets, counts, data)
        })
    }

    /// As `store_slab`, of a chunked array; of those bytes of the box alone where `mask`, which has
    /// as many, is not zero.
    pub fn store_masked(
        &self,
        oid: Oid,
        offsets: &[u64],
        counts: &[u64],
        data: &[u8],
        mask: &[u8],
    ) -> Result<()> {
        self.write_in_owning_realm(Member::Object(oid), Doing::Changing, |realm| {
            realm.store_masked(oid, offsets, counts, data, mask)
        })
    }

    /// Gives a chunked array another shape of as many dimensions, in one commit. What it grows by
    /// is zeros; what is cut off is gone.
    ///
    /// On error all is as it was.
    pub fn reshape(&self, oid: Oid, shape: &[u64]) -> Result<()> {
        self.write_in_owning_realm(Member::Object(oid), Doing::Changing, |realm| {
            realm.reshape(oid, shape)
        })
    }

    /// Appends `data`, of this shape and in C order, to a chunked array along one dimension, in one
    /// commit; the shape of the array after it.
    ///
    /// Who appends at the same time comes before or after. On error all is as it was.
    pub fn append(&self, oid: Oid, axis: usize, counts: &[u64], data: &[u8]) -> Result<Vec<u64>> {
        self.write_in_owning_realm(Member::Object(oid), Doing::Changing, |realm| {
            realm.append(oid, axis, counts, data)
        })
    }

    /// The bytes that an object's value takes, of the arena and of the catalog.
    pub fn stored_nbytes(&self, oid: Oid) -> Result<u64> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.stored_nbytes(oid))
    }
}
