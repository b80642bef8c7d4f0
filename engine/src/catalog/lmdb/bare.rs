//! LMDB's own calls, for measuring what the wrapper costs above them, and a look at its slots.

use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use lmdb_master_sys as ffi;

use super::{Env, check};
use crate::catalog::Table;
use crate::error::Result;

fn value(bytes: &[u8]) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

impl Env {
    /// How many reader slots have ever been in use at once, over all processes.
    pub(in crate::catalog) fn readers_ever(&self) -> Result<u32> {
        let mut info = ffi::MDB_envinfo {
            me_mapaddr: ptr::null_mut(),
            me_mapsize: 0,
            me_last_pgno: 0,
            me_last_txnid: 0,
            me_maxreaders: 0,
            me_numreaders: 0,
        };
        // SAFETY: the environment is open, `info` a valid place.
        check("mdb_env_info", unsafe { ffi::mdb_env_info(self.raw.as_ptr(), &raw mut info) })?;
        Ok(info.me_numreaders)
    }

    /// One row in each of two tables, committed.
    pub(in crate::catalog) fn bare_commit(&self, key: &[u8], object: &[u8], name: &[u8]) {
        let mut txn = ptr::null_mut();
        let (mut key, mut object, mut name) = (value(key), value(object), value(name));
        // SAFETY: as in `Env::write` and `Write::put`.
        unsafe {
            assert_eq!(ffi::mdb_txn_begin(self.raw.as_ptr(), ptr::null_mut(), 0, &raw mut txn), 0);
            let objects = self.tables[Table::Objects as usize];
            assert_eq!(ffi::mdb_put(txn, objects, &raw mut key, &raw mut object, 0), 0);
            let names = self.tables[Table::Names as usize];
            assert_eq!(ffi::mdb_put(txn, names, &raw mut key, &raw mut name, 0), 0);
            assert_eq!(ffi::mdb_txn_commit(txn), 0);
        }
    }

    /// Rows with ascending keys, in one commit.
    pub(in crate::catalog) fn bare_batch(&self, first: u64, rows: u64, object: &[u8]) {
        let mut txn = ptr::null_mut();
        // SAFETY: as in `Env::write` and `Write::put`.
        unsafe {
            assert_eq!(ffi::mdb_txn_begin(self.raw.as_ptr(), ptr::null_mut(), 0, &raw mut txn), 0);
            for number in first..first + rows {
                let bytes = number.to_be_bytes();
                let (mut key, mut object) = (value(&bytes), value(object));
                let objects = self.tables[Table::Objects as usize];
                assert_eq!(ffi::mdb_put(txn, objects, &raw mut key, &raw mut object, 0), 0);
            }
            assert_eq!(ffi::mdb_txn_commit(txn), 0);
        }
    }

    /// The time of renewing, reading one row and resetting, in nanoseconds.
    pub(in crate::catalog) fn bare_reads(&self, times: u32, key: impl Fn(u64) -> [u8; 8]) -> f64 {
        let mut txn = ptr::null_mut();
        // SAFETY: as in `Env::read` and `Txn::get`; the transaction is used here alone.
        unsafe {
            let env = self.raw.as_ptr();
            assert_eq!(ffi::mdb_txn_begin(env, ptr::null_mut(), ffi::MDB_RDONLY, &raw mut txn), 0);
            ffi::mdb_txn_reset(txn);
            let start = Instant::now();
            for number in 0..u64::from(times) {
                assert_eq!(ffi::mdb_txn_renew(txn), 0);
                let bytes = key(number);
                let (mut key, mut found) = (value(&bytes), value(&[]));
                let names = self.tables[Table::Names as usize];
                assert_eq!(ffi::mdb_get(txn, names, &raw mut key, &raw mut found), 0);
                black_box(found);
                ffi::mdb_txn_reset(txn);
            }
            let elapsed = start.elapsed();
            ffi::mdb_txn_abort(txn);
            elapsed.as_secs_f64() * 1e9 / f64::from(times)
        }
    }
}
